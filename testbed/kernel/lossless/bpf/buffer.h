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
/* Takes back what a packet of `port` was charged. */
static __always_inline void uncharge(const struct port_config *config, struct port_state *state, __u32 tag, __u32 length)
{
	__u32 class = CLASS_OF(tag), from = PORT_OF(tag);
	struct bpf_spin_lock *lock;
	struct port_state *source;
	struct pool *pool;

	if (config->kind != SWITCH || !from || from >= MADE)
		return;
	pool = pool_of(config->owner);
	lock = pool_lock(config->owner);
	if (!pool || !lock)
		return;
	if (config->lossless & 1 << class) {
		struct priority_group *group;

		source = state_of(from);
		if (!source)
			return;
		group = &source->group[class];
		bpf_spin_lock(lock);
		release(pool, &group->headroom, &group->shared, &group->reserve, length);
		bpf_spin_unlock(lock);
	} else {
		struct queue *queue = &state->queue[class];

		bpf_spin_lock(lock);
		release(pool, (void *)0, &queue->shared, &queue->reserve, length);
		bpf_spin_unlock(lock);
	}
}
#endif
