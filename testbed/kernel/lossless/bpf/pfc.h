/* Priority flow control, IEEE 802.1Qbb: frames that stop a peer's class, and that have it go on. */
#ifndef PFC_H
#define PFC_H
#include "buffer.h"

#define ETH_P_PAUSE 0x8808
#define PFC_OPCODE 0x0101
#define PFC_LENGTH 60
#define QUANTUM_BITS 512

static __always_inline int make_pause(struct __sk_buff *ctx, const struct port_config *config, __u32 class,
				      __u16 quanta)
{
	__u8 frame[PFC_LENGTH] = { 0x01, 0x80, 0xc2, 0, 0, 1 };

	__builtin_memcpy(frame + 6, config->mac, 6);
	frame[12] = ETH_P_PAUSE >> 8;
	frame[13] = ETH_P_PAUSE & 0xff;
	frame[14] = PFC_OPCODE >> 8;
	frame[15] = PFC_OPCODE & 0xff;
	class &= CLASSES - 1;
	frame[17] = 1 << class;
	frame[18 + 2 * class] = quanta >> 8;
	frame[19 + 2 * class] = quanta & 0xff;
	if (bpf_skb_change_tail(ctx, PFC_LENGTH, 0))
		return SHOT;
	if (bpf_skb_store_bytes(ctx, 0, frame, PFC_LENGTH, BPF_F_INVALIDATE_HASH))
		return SHOT;
	return NEXT;
}
static __always_inline __u64 quanta_ns(const struct port_config *config, __u32 quanta)
{
	return (__u64)quanta * (QUANTUM_BITS / 8) * config->ns_per_kib >> 10;
}

/* A finished episode goes into the ring that user space reads. */
static __always_inline void end_episode(struct queue *queue, __u32 port, __u32 class)
{
	__u32 zero = 0, slot;
	struct counter *written = bpf_map_lookup_elem(&episodes_written, &zero);
	struct episode *episode;

	if (!written)
		return;
	slot = __sync_fetch_and_add(&written->value, 1) % EPISODES;
	episode = bpf_map_lookup_elem(&episodes, &slot);
	if (!episode)
		return;
	episode->from_ns = queue->episode_at;
	episode->to_ns = queue->episode_end;
	episode->frames = queue->episode_frames;
	episode->port = port;
	episode->class = class;
	queue->episode_at = 0;
}
static __always_inline void begin_pause(struct port_state *state, struct queue *queue, __u32 port, __u32 class,
					__u64 now)
{
	if (queue->episode_at && now - queue->episode_end > EPISODE_GAP_NS)
		end_episode(queue, port, class);
	if (!queue->episode_at) {
		queue->episode_at = now;
		queue->episode_frames = 0;
	}
	queue->paused_at = now;
	__sync_fetch_and_or(&state->paused, 1ULL << class);
}
static __always_inline void end_pause(struct port_state *state, struct queue *queue, __u32 class, __u64 now)
{
	__sync_fetch_and_and(&state->paused, ~(1ULL << class));
	queue->paused_ns += now - queue->paused_at;
	queue->episode_end = now;
	queue->paused_at = 0;
}

/* Takes a frame that came in. Its own qdisc looks at the queues after the wake. */
GLOBAL int take_pause(struct __sk_buff *ctx, __u32 port, struct port_config *config)
{
	struct port_state *state = state_of(port);
	__u64 now = bpf_ktime_get_ns();
	__u8 frame[34];
	__u32 i;
	int wakes = 0;

	if (!state || !config || bpf_skb_load_bytes(ctx, 0, frame, sizeof(frame)))
		return SHOT;
	if (frame[14] << 8 != (PFC_OPCODE & 0xff00) || frame[15] != (PFC_OPCODE & 0xff))
		return SHOT;
	for (i = 0; i < CLASSES; i++) {
		struct queue *queue = &state->queue[i];
		__u32 quanta = frame[18 + 2 * i] << 8 | frame[19 + 2 * i];

		if (!(frame[17] & 1 << i))
			continue;
		if (quanta)
			state->rx_pause[i]++;
		else
			state->rx_resume[i]++;
		if (!(config->honours_pause & 1 << i))
			continue;
		if (quanta) {
			queue->pause_until = now + quanta_ns(config, quanta);
			if (!(state->paused & 1 << i))
				begin_pause(state, queue, port, i, now);
			queue->episode_frames++;
		} else if (state->paused & 1 << i) {
			end_pause(state, queue, i, now);
			wakes = 1;
		}
	}
	if (wakes)
		send_made(ctx, ctx->ifindex, MAKE_WAKE, 0);
	return SHOT;
}

/* Ends the pauses whose time is over. A peer that still means one sends another frame in time, which is not sent here: it is
 * looked up instead. */
static __always_inline void expire_pauses(const struct port_config *config, struct port_state *state, __u64 now)
{
	struct port_state *peer = state_of(config->peer);
	__u32 i;

	if (!peer)
		return;
	for (i = 0; i < CLASSES; i++) {
		struct queue *queue = &state->queue[i];

		if (!(state->paused & 1 << i) || queue->pause_until > now)
			continue;
		if (peer->group[i].xoff || peer->holds & 1 << i)
			queue->pause_until = now + quanta_ns(config, 0xffff);
		else
			end_pause(state, queue, i, now);
	}
}
#endif
