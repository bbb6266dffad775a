/* The memory management unit of a switch: a buffer that its ports share.
 *
 * A lossless packet is charged to its group (the port it came in by, its class): to the group's reserve, else to the shared
 * buffer up to alpha times what is free of it, else to the group's headroom. When the headroom is used, or has no room for a
 * packet, the peer is told to stop. It may go on when the headroom is empty and the group `xon_offset` below its threshold.
 * A lossy packet is charged to the queue it waits in, to its reserve, else to the shared buffer in the same way. A packet
 * that fits nowhere is dropped. Charges are made at admission to a queue, as what comes in is there at once, and are taken
 * back when the packet starts on the link. */
#ifndef MMU_H
#define MMU_H
#include "layout.h"

#define REFUSED 1
#define STOP_PEER 2

static __always_inline __u64 threshold(const struct pool *pool, const struct pool_class *class)
{
	__u64 left = pool->size > pool->used ? pool->size - pool->used : 0;

	return left * class->alpha_numerator / (class->alpha_denominator ?: 1);
}

/* Whoever calls one of these holds the pool's lock. */

static __always_inline int may_resume(const struct pool *pool, const struct pool_class *class,
				      const struct priority_group *group)
{
	if (group->headroom || group->waiting)
		return 0;
	return !group->shared || group->shared + class->xon_offset <= threshold(pool, class);
}
static __always_inline void take_shared(struct pool *pool, __u64 length)
{
	pool->used += length;
	if (pool->used > pool->max)
		pool->max = pool->used;
}
static __always_inline int stop(struct port_state *state, __u32 number)
{
	struct priority_group *group = &state->group[number & (CLASSES - 1)];

	if (group->xoff)
		return 0;
	group->xoff = 1;
	state->stopped |= 1ULL << number;
	return STOP_PEER;
}
static __always_inline int charge_group(struct pool *pool, const struct pool_class *class,
					const struct port_config *from, struct port_state *state, __u32 number,
					__u32 length)
{
	struct priority_group *group = &state->group[number & (CLASSES - 1)];
	__u64 all;
	int result = 0;

	if (!group->headroom && !group->shared && group->reserve + length <= from->reserve) {
		group->reserve += length;
	} else if (!group->headroom && group->shared + length <= threshold(pool, class)) {
		group->shared += length;
		take_shared(pool, length);
	} else if (group->headroom + length <= from->headroom) {
		group->headroom += length;
		if (group->headroom > group->max_headroom)
			group->max_headroom = group->headroom;
	} else {
		result = REFUSED;
	}
	all = group->reserve + group->shared + group->headroom;
	if (all > group->max)
		group->max = all;
	if (group->headroom || result)
		result |= stop(state, number);
	return result;
}
/* The same of a packet without a next hop. Nobody knows how long it waits, so the peer stops at once. */
static __always_inline int charge_waiting(struct pool *pool, const struct pool_class *class,
					  const struct port_config *from, struct port_state *state, __u32 number,
					  __u32 length)
{
	int result = charge_group(pool, class, from, state, number, length);

	if (!(result & REFUSED))
		state->group[number & (CLASSES - 1)].waiting++;
	return result | stop(state, number);
}
static __always_inline int charge_queue(struct pool *pool, const struct pool_class *class, struct queue *queue,
					__u32 length)
{
	if (!queue->shared && queue->reserve + length <= class->reserve) {
		queue->reserve += length;
	} else if (queue->shared + length <= threshold(pool, class)) {
		queue->shared += length;
		take_shared(pool, length);
	} else {
		return REFUSED;
	}
	return 0;
}
static __always_inline __u64 give_back(__u64 *charged, __u64 length)
{
	__u64 part = MIN(*charged, length);

	*charged -= part;
	return part;
}
static __always_inline void release(struct pool *pool, __u64 *headroom, __u64 *shared, __u64 *reserve, __u64 length)
{
	if (headroom)
		length -= give_back(headroom, length);
	{
		__u64 part = give_back(shared, length);

		pool->used -= part;
		length -= part;
	}
	give_back(reserve, length);
}
#endif
