/* What a RoCE NIC does with congestion marks: as the receiver of data (notification point) it answers with CNPs, as their
 * receiver (reaction point) it slows a queue pair down. */
#ifndef NIC_H
#define NIC_H
#include "dcqcn.h"
#include "roce.h"

struct flow_key {
	__u8 address[16]; /* of the peer */
	__u32 qpn, port;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, __u32);
} slots SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct flow_key);
	__type(value, __u64);
} notified SEC(".maps");

static __always_inline struct flow *find_flow(struct flow_key *key, __u32 *slot)
{
	__u32 *found = bpf_map_lookup_elem(&slots, key);
	struct flow *flow;

	if (!found)
		return (void *)0;
	*slot = *found;
	flow = flow_of(key->port, *found);
	if (!flow || flow->qpn != key->qpn || __builtin_memcmp(flow->address, key->address, 16))
		return (void *)0; /* an earlier lab's */
	return flow;
}

/* The slot of the queue pair that a packet to be sent belongs to; FLOWS for what is not paced. */
GLOBAL int slot_of(struct __sk_buff *ctx, __u32 port, struct port_state *state, __u32 class)
{
	struct roce data = {};
	struct flow_key key = { .port = port };
	struct flow *flow;
	__u32 slot;

	if (!state || !read_roce(ctx, &data))
		return FLOWS;
	if (data.opcode == OP_ACK || data.opcode == OP_ATOMIC_ACK || data.opcode == OP_CNP)
		return FLOWS;
	__builtin_memcpy(key.address, data.target, 16);
	key.qpn = data.qpn;
	if (find_flow(&key, &slot))
		return slot;
	slot = state->flows;
	if (slot >= FLOWS) {
		state->flows_unpaced++;
		return FLOWS;
	}
	flow = flow_of(port, slot);
	if (!flow)
		return FLOWS;
	state->flows++;
	__builtin_memcpy(flow->address, data.target, 16);
	flow->qpn = data.qpn;
	flow->class = class;
	flow->rate = flow->target = 0;
	bpf_map_update_elem(&slots, &key, &slot, 0);
	return slot;
}

static __always_inline int take_cnp(__u32 port, struct port_config *config, struct port_state *state, struct roce *cnp)
{
	struct flow_key key = { .port = port };
	struct dcqcn *values = dcqcn_of(port);
	struct flow *flow;
	__u32 slot, *peer;

	if (config->algorithm != DCQCN || !values) {
		state->cnp_ignored++;
		return SHOT;
	}
	peer = peer_of(cnp->target, cnp->qpn);
	if (peer) {
		__builtin_memcpy(key.address, cnp->source, 16);
		key.qpn = *peer;
		flow = find_flow(&key, &slot);
		if (flow) {
			state->cnp_handled++;
			cut(flow, values, line_rate(config), bpf_ktime_get_ns());
			return SHOT;
		}
	}
	state->cnp_ignored++;
	return SHOT;
}

/* A NIC that is slow to take in what comes stops its peer when too much waits: its qdisc lets it go on. */
static __always_inline void take_in(struct __sk_buff *ctx, struct port_config *config, struct port_state *state)
{
	__u32 class = classify(ctx, config);
	__u64 now = bpf_ktime_get_ns(), bit = 1ULL << class;

	if (!(config->sends_pause & bit))
		return;
	if (state->taken_in_at < now)
		state->taken_in_at = now;
	state->taken_in_at += ctx->len * config->receive_ns_per_kib >> 10;
	if (state->stopped & bit || state->taken_in_at - now <= config->receive_stop * config->receive_ns_per_kib >> 10)
		return;
	state->stopped |= bit;
	state->holds |= bit;
	send_made(ctx, ctx->ifindex, MAKE_XOFF, class);
	send_made(ctx, ctx->ifindex, MAKE_STOCK, class);
}

/* RoCE that comes in at a NIC. */
GLOBAL int receive(struct __sk_buff *ctx, __u32 port, struct port_config *config)
{
	struct port_state *state = state_of(port);
	struct flow_key key = { .port = port };
	struct dcqcn *values = dcqcn_of(port);
	struct roce data = {};
	__u64 now, *last;

	if (!config || !state || !values)
		return NEXT;
	if (config->receive_ns_per_kib)
		take_in(ctx, config, state);
	if (!read_roce(ctx, &data))
		return NEXT;
	if (data.opcode == OP_CNP)
		return take_cnp(port, config, state, &data);
	if (data.ecn != ECN_CE)
		return NEXT;
	state->ce_packets++;
	if (!config->notifies)
		return NEXT;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(key.address, data.source, 16);
	key.qpn = data.qpn;
	last = bpf_map_lookup_elem(&notified, &key);
	if (last && now - *last < values->cnp_ns)
		return NEXT;
	if (!peer_of(data.target, data.qpn)) {
		state->no_mapping++;
		return NEXT;
	}
	bpf_map_update_elem(&notified, &key, &now, 0);
	state->cnp_sent++;
	send_made(ctx, ctx->ifindex, MAKE_CNP, config->cnp_class);
	return NEXT;
}
#endif
