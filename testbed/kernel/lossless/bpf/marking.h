/* ECN marks of a switch's port, and a controller of them: Adaptive RED (Floyd, Gummadi, Shenker, 2001, section 3 and figure 1).
 *
 * Every interval the probability at `max` grows by 1 %, or by a quarter if that is less, while the average queue is above 60 % of
 * the way from `min` to `max`, and becomes nine tenths of what it was while the average is below 40 %, between 1 and 50 %. The
 * average has the paper's time constant of two intervals. As with DCQCN, it is the queue itself that decides about a mark. */
#ifndef MARKING_H
#define MARKING_H
#include "kernel.h"
#include "maps.h"

#define ONE (1 << 16)
#define LEAST_PROBABILITY (ONE / 100)
#define MOST_PROBABILITY (ONE / 2)
#define PARTS 16 /* of a byte, in the average */
#define MOST_STEPS 64 /* after which the probability of an idle queue is the least */

static __always_inline void average(struct queue *queue, __u64 interval_us, __u64 now)
{
	__u64 constant = 2 * interval_us, passed = (now - queue->averaged_at) / 1000, length = queue->bytes * PARTS;

	if (passed > constant) {
		queue->average = length;
		queue->averaged_at = now;
		return;
	}
	if (length >= queue->average)
		queue->average += (length - queue->average) * passed / constant;
	else
		queue->average -= (queue->average - length) * passed / constant;
	queue->averaged_at += passed * 1000;
}
static __always_inline void step(struct queue *queue, const struct marking *marking)
{
	__u64 tenth = (__u64)(marking->max - marking->min) * PARTS / 10, least = (__u64)marking->min * PARTS;

	if (queue->average > least + 6 * tenth && queue->probability <= MOST_PROBABILITY)
		queue->probability += MIN(LEAST_PROBABILITY, queue->probability / 4);
	else if (queue->average < least + 4 * tenth && queue->probability >= LEAST_PROBABILITY)
		queue->probability -= queue->probability / 10;
}
static __always_inline void control_marking(struct queue *queue, const struct marking *marking, __u64 now)
{
	__u64 interval = (__u64)marking->interval_us * 1000;
	int steps;

	if (!queue->adapt_at) {
		queue->probability = marking->probability;
		queue->averaged_at = now;
		queue->adapt_at = now + interval;
	}
	average(queue, marking->interval_us, now);
	for (steps = 0; steps < MOST_STEPS && queue->adapt_at <= now; steps++) {
		step(queue, marking);
		queue->adapt_at += interval;
	}
	if (queue->adapt_at <= now)
		queue->adapt_at = now + interval;
}
static __always_inline void mark(struct __sk_buff *ctx, const struct port_config *config, struct port_state *state,
				 __u32 class)
{
	const struct marking *marking = &config->marking[class];
	struct queue *queue = &state->queue[class];
	__u64 probability = marking->probability;

	if (!marking->max)
		return;
	if (marking->interval_us) {
		control_marking(queue, marking, bpf_ktime_get_ns());
		probability = queue->probability;
	}
	if (queue->bytes <= marking->min)
		return;
	if (queue->bytes <= marking->max &&
	    (next_random(&state->random) & 0xffff) >= probability * (queue->bytes - marking->min) / ((marking->max - marking->min) ?: 1))
		return;
	if (bpf_skb_ecn_set_ce(ctx) > 0)
		queue->marked++;
}
#endif
