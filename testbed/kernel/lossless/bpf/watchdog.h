/* The PFC watchdog of a switch's port, as SONiC's: it polls its queues (orchagent/pfc_detect_broadcom.lua, pfc_restore.lua).
 *
 * A queue is in a storm when at polls one after the other, for the detection time, it is paused and was at the poll before,
 * more pause frames have come, and no XON frame ended a pause between: whether packets wait or not. Then the port has no PFC
 * in that class, in either direction, and packets of the class that leave by it or come in by it are dropped, or forwarded.
 * It is over when no pause frame came for the restoration time.
 *
 * A real poll is some hundred times as long as a pause. On a slow link it may be shorter than the time after which a pause is
 * sent again; then that is the time between polls. */
#ifndef WATCHDOG_H
#define WATCHDOG_H
#include "nic.h"
#include "qdisc_parts.h"

static __always_inline void count_out(struct port_state *state, __u32 class, __u32 length)
{
	struct queue *queue = &state->queue[class & (CLASSES - 1)];

	queue->bytes -= length;
	if (!--queue->packets)
		state->waiting &= ~(1ULL << (class & (CLASSES - 1)));
}

/* Whether a packet that is to leave is dropped. */
static __always_inline int dropped_in_storm(const struct port_config *config, struct port_state *state, __u32 class)
{
	if (!(state->storming & 1 << class) || config->watchdog_action != WATCHDOG_DROP)
		return 0;
	state->queue[class & (CLASSES - 1)].storm_dropped++;
	return 1;
}
/* The verdict on a packet that comes in by a port in a storm. */
static __always_inline int comes_in_storm(const struct port_config *config, struct queue *queue)
{
	if (config->watchdog_action == WATCHDOG_DROP) {
		queue->storm_dropped_in++;
		return SHOT;
	}
	queue->storm_received++;
	return NEXT;
}

/* Drops the packets of a class that have been admitted, and returns their number. */
static __always_inline __u64 flush(__u32 port, struct port_config *config, struct port_state *state, __u32 class)
{
	struct list *list = list_of(port, class);
	struct packet *packet;
	__u64 before = state->packets;
	int i;

	if (!list)
		return 0;
	bpf_for(i, 0, STALE)
	{
		packet = pop_front(list);
		if (!packet)
			break;
		uncharge(config, state, packet->tag, packet->length);
		count_out(state, class, packet->length);
		state->packets--;
		state->bytes -= packet->length;
		state->queue[class & (CLASSES - 1)].flushed_packets++;
		discard(packet);
	}
	return before - state->packets;
}

/* What the next poll compares with. */
static __always_inline void remember(struct queue *queue, __u64 frames, __u64 paused)
{
	queue->polled_frames = frames;
	queue->polled_on_to_off = queue->on_to_off;
	queue->polled_paused = paused;
}
/* Whether the condition that a poll looks for has held for `time`. */
static __always_inline int held_for(struct queue *queue, int holds, __u64 time, __u64 poll)
{
	if (holds && queue->left_ns <= poll)
		return 1;
	queue->left_ns = holds ? queue->left_ns - poll : time;
	return 0;
}
static __always_inline void poll_queue(const struct port_config *config, struct port_state *state, __u32 class,
				       struct queue *queue, __u64 poll, __u64 now)
{
	__u64 bit = 1ULL << class, frames = state->rx_pause[class] + state->rx_resume[class], paused = state->paused & bit;

	if (state->storming & bit) {
		if (held_for(queue, frames == queue->polled_frames, config->watchdog_restore_ns, poll)) {
			state->storming &= ~bit;
			queue->restored++;
			queue->left_ns = config->watchdog_detect_ns;
		}
	} else {
		int storms = frames != queue->polled_frames && queue->on_to_off == queue->polled_on_to_off &&
			     queue->polled_paused && paused;

		if (held_for(queue, storms, config->watchdog_detect_ns, poll)) {
			state->storming |= bit;
			queue->storms++;
			queue->left_ns = config->watchdog_restore_ns;
			end_pause(state, queue, class, now);
		}
	}
	remember(queue, frames, paused);
}

/* Polls at multiples of the polling time; when it polls next, if it has to. */
GLOBAL __u64 watch(__u32 port, struct port_config *config, struct port_state *state, __u64 now)
{
	__u64 next = 0, poll;
	__u32 class;

	if (!config || !state)
		return 0;
	poll = MAX(MAX(config->watchdog_poll_ns, refresh_ns(config)), 1);
	bpf_for(class, 0, CLASSES)
	{
		struct queue *queue;
		__u64 bit = 1ULL << class;

		if (class >= CLASSES || !(config->lossless & bit))
			continue;
		queue = &state->queue[class];
		if (!((state->storming | state->paused) & bit)) {
			queue->poll_at = 0;
			continue;
		}
		if (!queue->poll_at || queue->poll_at + (poll >> 3) < now) { /* nobody looked: it was not paused */
			queue->poll_at = (now / poll + 1) * poll;
			queue->left_ns = state->storming & bit ? config->watchdog_restore_ns : config->watchdog_detect_ns;
			remember(queue, state->rx_pause[class] + state->rx_resume[class], 0);
		} else if (queue->poll_at <= now) {
			queue->poll_at = (now / poll + 1) * poll;
			poll_queue(config, state, class, queue, poll, now);
		}
		if (state->storming & bit && config->watchdog_action == WATCHDOG_DROP)
			queue->storm_dropped += flush(port, config, state, class);
		if ((state->storming | state->paused) & bit)
			next = sooner(next, queue->poll_at);
		else
			queue->poll_at = 0;
	}
	return next;
}
#endif
