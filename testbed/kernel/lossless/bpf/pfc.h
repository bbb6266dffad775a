/* Priority flow control, IEEE 802.1Qbb: frames that stop a peer's class, and that have it go on. */
#ifndef PFC_H
#define PFC_H
#include "buffer.h"

#define ETH_P_PAUSE 0x8808
#define PFC_OPCODE 0x0101
#define PFC_LENGTH 60

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
/* How long a pause frame stops its receiver at most. Of a link without a bound that is the time of 100 Gbit/s. */
#define NS_PER_KIB_AT_100_GBIT 82
static __always_inline __u64 quanta_ns(const struct port_config *config, __u32 quanta)
{
	return (__u64)quanta * (QUANTUM_BITS / 8) * (config->ns_per_kib ?: NS_PER_KIB_AT_100_GBIT) >> 10;
}
/* A port that still means a pause says so again after half of its time, as Intel's MACs do (FCRTV, the refresh threshold of
 * Linux' ixgbe: half of the pause time). */
static __always_inline __u64 refresh_ns(const struct port_config *config)
{
	return quanta_ns(config, MOST_QUANTA) / 2;
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
static __always_inline void end_pause(struct port_state *state, struct queue *queue, __u32 class, __u64 at)
{
	__sync_fetch_and_and(&state->paused, ~(1ULL << class));
	queue->paused_ns += at - queue->paused_at;
	queue->episode_end = at;
	queue->paused_at = 0;
}

/* Ends a pause whose time is over. Nobody looks at that moment if nothing waits. */
static __always_inline void expire_pause(struct port_state *state, struct queue *queue, __u32 class, __u64 now)
{
	if (state->paused & 1 << class && queue->pause_until <= now)
		end_pause(state, queue, class, queue->pause_until);
}
static __always_inline void expire_pauses(struct port_state *state, __u64 now)
{
	__u32 i;

	for (i = 0; i < CLASSES; i++)
		expire_pause(state, &state->queue[i], i, now);
}

/* Takes a frame that came in. Its own qdisc looks at the queues after the wake: at those that may go on, or as a watchdog. */
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
		if (!(config->honours_pause & ~state->storming & 1 << i))
			continue;
		expire_pause(state, queue, i, now);
		if (quanta) {
			queue->pause_until = now + quanta_ns(config, quanta);
			if (!(state->paused & 1 << i))
				begin_pause(state, queue, port, i, now);
			queue->episode_frames++;
			wakes |= config->watchdog_detect_ns && !queue->poll_at;
		} else if (state->paused & 1 << i) {
			end_pause(state, queue, i, now);
			queue->on_to_off++;
			wakes = 1;
		}
	}
	if (wakes)
		send_made(ctx, ctx->ifindex, MAKE_WAKE, 0);
	return SHOT;
}

/* A qdisc can hold a packet, but not make one. So the XOFF frame that is due next, of a port that has stopped its peer,
 * circulates in its node's loopback interface, whose queue (fq) holds it for its time. Each time it comes round a clone goes
 * out by the port, until the peer may go on. */
#define LOOPBACK 1
static __always_inline void wait_to_refresh(struct __sk_buff *ctx, const struct port_config *config,
					    struct port_state *state, __u32 port, __u32 class)
{
	__u32 tag = ctx->tc_index;

	class &= CLASSES - 1;
	state->group[class].again_at = state->group[class].xoff_at + refresh_ns(config);
	__sync_fetch_and_or(&state->refreshing, 1ULL << class);
	ctx->tc_index = TAG(port, class);
	bpf_clone_redirect(ctx, LOOPBACK, 0);
	ctx->tc_index = tag;
}
/* An XOFF frame leaves by the port: the first of those that follow each other waits for its next time. */
static __always_inline void xoff_leaves(struct __sk_buff *ctx, const struct port_config *config,
					struct port_state *state, __u32 port, __u32 class)
{
	class &= CLASSES - 1;
	state->tx_pause[class]++;
	state->group[class].xoff_at = bpf_ktime_get_ns();
	if (!(state->refreshing & 1ULL << class))
		wait_to_refresh(ctx, config, state, port, class);
}
/* Whether a port is to send an XOFF frame: it has just stopped its peer, or had no PFC then. */
static __always_inline int must_stop(int verdict, const struct port_state *state, __u32 class)
{
	return verdict & STOP_PEER || state->stopped & ~state->refreshing & 1 << class;
}
/* Sends an XOFF frame of a port, by a clone of a packet; and has the XON frame ready that ends it. */
static __always_inline void stop_peer(struct __sk_buff *ctx, const struct port_config *config, struct port_state *state,
				      __u32 class)
{
	if (!(config->sends_pause & ~state->storming & 1 << class))
		return;
	send_made(ctx, config->ifindex, MAKE_XOFF, class);
	if (!state->group[class & (CLASSES - 1)].stock)
		send_made(ctx, config->ifindex, MAKE_STOCK, class);
}
/* A frame that a program sends, such as a NIC that goes mad. */
static __always_inline void send_pause(struct __sk_buff *ctx, const struct port_config *config,
				       struct port_state *state, __u32 port)
{
	__u8 frame[34];
	__u32 i;

	ctx->tc_index = TAG(0, CLASSES - 1);
	if (bpf_skb_load_bytes(ctx, 0, frame, sizeof(frame)))
		return;
	for (i = 0; i < CLASSES; i++) {
		if (!(frame[17] & 1 << i))
			continue;
		if (!(frame[18 + 2 * i] | frame[19 + 2 * i]))
			state->tx_resume[i]++;
		else if (state->holds & 1 << i)
			xoff_leaves(ctx, config, state, port, i);
		else
			state->tx_pause[i]++;
	}
}

SEC("tcx/egress")
int waits_in_loopback(struct __sk_buff *ctx)
{
	__u32 tag = ctx->tc_index;
	struct port_state *state = state_of(PORT_OF(tag));

	if (ctx->protocol == bpf_htons(ETH_P_PAUSE) && PORT_OF(tag) && state)
		ctx->tstamp = state->group[CLASS_OF(tag)].again_at;
	return NEXT;
}

SEC("tcx/ingress")
int comes_round(struct __sk_buff *ctx)
{
	__u32 tag = ctx->tc_index, port = PORT_OF(tag), class = CLASS_OF(tag);
	struct port_config *config = config_of(port);
	struct port_state *state = state_of(port);
	struct priority_group *group;
	__u64 bit = 1ULL << class;

	if (ctx->protocol != bpf_htons(ETH_P_PAUSE) || !port || !config || !state)
		return NEXT;
	group = &state->group[class];
	if (!((state->stopped | state->holds) & ~state->storming & config->sends_pause & bit)) {
		__sync_fetch_and_and(&state->refreshing, ~bit);
		return SHOT;
	}
	if (group->xoff_at + refresh_ns(config) <= bpf_ktime_get_ns())
		send_made(ctx, config->ifindex, MADE_XOFF, class);
	wait_to_refresh(ctx, config, state, port, class);
	return SHOT;
}
#endif
