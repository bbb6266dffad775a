/* The buffer of a switch: its lock, and what leaves it. */
#ifndef BUFFER_H
#define BUFFER_H
#include "maps.h"
#include "mmu.h"

static __always_inline struct bpf_spin_lock *pool_lock(__u32 owner)
{
	struct lock *found = bpf_map_lookup_elem(&pool_locks, &owner);

	return found ? &found->lock : (void *)0;
}
/* Takes back what a packet was charged that came in by a port in a lossless class. */
static __always_inline void give_back_charge(__u32 from, __u32 class, __u32 length)
{
	struct port_config *source = config_of(from);
	struct port_state *state = state_of(from);
	struct bpf_spin_lock *lock;
	struct priority_group *group;
	struct pool *pool;

	if (!source || !state)
		return;
	pool = pool_of(source->owner);
	lock = pool_lock(source->owner);
	if (!pool || !lock)
		return;
	group = &state->group[class & (CLASSES - 1)];
	bpf_spin_lock(lock);
	release(pool, &group->headroom, &group->shared, &group->reserve, length);
	bpf_spin_unlock(lock);
}
/* Takes back what a packet of `port` was charged. */
static __always_inline void uncharge(const struct port_config *config, struct port_state *state, __u32 tag, __u32 length)
{
	__u32 class = CLASS_OF(tag), from = PORT_OF(tag);
	struct bpf_spin_lock *lock;
	struct queue *queue;
	struct pool *pool;

	if (config->kind != SWITCH || !from || from >= MADE)
		return;
	if (config->lossless & 1 << class) {
		give_back_charge(from, class, length);
		return;
	}
	pool = pool_of(config->owner);
	lock = pool_lock(config->owner);
	if (!pool || !lock)
		return;
	queue = &state->queue[class];
	bpf_spin_lock(lock);
	release(pool, (void *)0, &queue->shared, &queue->reserve, length);
	bpf_spin_unlock(lock);
}
#endif
