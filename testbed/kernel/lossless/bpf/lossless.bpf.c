// SPDX-License-Identifier: GPL-2.0
/* A lossless Ethernet for labs: PFC with a shared buffer in each switch, ECN, DCQCN in the NICs, PFC watchdogs.
 *
 * On every port there are a program for what comes in, one for what goes out, and a qdisc with the queues. The program for
 * what goes out admits packets to the queues, because programs of tc have the helpers for that, and qdiscs have not. */
#include "kernel.h"
#include "balance.h"
#include "marking.h"
#include "next_hop.h"
#include "qdisc.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline __u32 port_of_device(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	return skb->dev->group;
}

SEC("tcx/ingress")
int comes_in(struct __sk_buff *ctx)
{
	__u32 port = port_of_device(ctx);
	struct port_config *config = config_of(port);
	struct port_state *state = state_of(port);

	if (!config || !config->kind)
		return NEXT;
	if (ctx->protocol == bpf_htons(ETH_P_PAUSE))
		return take_pause(ctx, port, config);
	if (config->kind == SWITCH) {
		__u32 class = classify(ctx, config);
		struct pool *pool = pool_of(config->owner);

		ctx->tc_index = TAG(port, class);
		if (!state || !pool)
			return NEXT;
		if (state->storming & 1 << class && comes_in_storm(config, &state->queue[class]) == SHOT)
			return SHOT;
		if (pool->balancing[class])
			balance(ctx, pool, class);
		return misses(pool) ? wait_for_next_hop(ctx, port, config, class) : NEXT;
	}
	ctx->tc_index = 0;
	return receive(ctx, port, config);
}

SEC("tcx/egress")
int goes_out(struct __sk_buff *ctx)
{
	__u32 port = port_of_device(ctx), tag = ctx->tc_index, from = PORT_OF(tag), class = CLASS_OF(tag), length = ctx->len;
	struct port_config *config = config_of(port), *source;
	struct port_state *state = state_of(port), *source_state;
	struct bpf_spin_lock *lock;
	struct pool *pool;
	__u32 charged;
	int verdict = 0;

	if (!config || !config->kind || !state)
		return NEXT;
	if (config->telemetry)
		ctx->cb[3] = 0;
	if (from >= MADE) {
		if (from == MAKE_XOFF || from == MADE_XOFF) {
			if (from == MAKE_XOFF && make_pause(ctx, config, class, MOST_QUANTA) == SHOT)
				return SHOT;
			ctx->tc_index = TAG(0, CLASSES - 1);
			xoff_leaves(ctx, config, state, port, class);
			return NEXT;
		}
		if (from == MAKE_STOCK)
			return make_pause(ctx, config, class, 0);
		if (from == MAKE_CNP || from == MAKE_ECHO) {
			ctx->tc_index = TAG(0, class);
			return make_cnp(ctx, from == MAKE_ECHO);
		}
		return NEXT;
	}
	if (ctx->protocol == bpf_htons(ETH_P_PAUSE)) {
		send_pause(ctx, config, state, port);
		return NEXT;
	}
	if (config->kind == NIC || !from) { /* what a node itself sends: no buffer is charged */
		class = classify(ctx, config);
		tag = TAG(0, class);
		if (config->kind == NIC && config->sorter)
			follow_sent(ctx, port, state);
		if (config->kind == NIC && config->algorithm) {
			__u32 slot = slot_of(ctx, port, config, state, class);

			if (slot < FLOWS)
				tag = TAG(slot + 1, class);
		}
		ctx->tc_index = tag;
		return NEXT;
	}
	learn_path(ctx, port);
	charged = from & CHARGED;
	from &= ~CHARGED;
	ctx->tc_index = TAG(from, class);
	pool = pool_of(config->owner);
	lock = pool_lock(config->owner);
	source = config_of(from);
	source_state = state_of(from);
	if (!pool || !lock || !source || !source_state)
		return NEXT;
	if (from == port) /* flooded by an SVI: not to where it came from */
		return SHOT;
	if (dropped_in_storm(config, state, class))
		return SHOT;
	if (charged) {
		waits_no_more(source_state, class);
	} else {
		bpf_spin_lock(lock);
		if (source->lossless & 1 << class)
			verdict = charge_group(pool, &pool->class[class], source, source_state, class, length);
		else
			verdict = charge_queue(pool, &pool->class[class], &state->queue[class], length);
		bpf_spin_unlock(lock);
	}
	if (must_stop(verdict, source_state, class))
		stop_peer(ctx, source, source_state, class);
	if (verdict & REFUSED) {
		state->queue[class].dropped_bytes += length;
		state->queue[class].dropped_packets++;
		return SHOT;
	}
	mark(ctx, config, state, class);
	if (config->telemetry)
		name_journey(ctx);
	return NEXT;
}
