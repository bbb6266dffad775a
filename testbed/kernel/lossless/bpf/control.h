/* Congestion control of a NIC: what each algorithm does with what happens to a queue pair. */
#ifndef CONTROL_H
#define CONTROL_H
#include "dcqcn.h"
#include "timely.h"
#include "hpcc.h"

static __always_inline __u64 line_rate(const struct port_config *config)
{
	return config->ns_per_kib ? 8192ULL * 1000000000 / config->ns_per_kib : 100000000000ULL;
}

/* A CNP came; whether the algorithm heeds it. */
static __always_inline int on_cnp(const struct port_config *config, struct control *control, struct flow *flow, __u64 now)
{
	if (config->algorithm != DCQCN)
		return 0;
	cut(flow, &control->dcqcn, line_rate(config), now);
	return 1;
}

/* A packet of the queue pair is to be sent. One that was sent before tells nothing by its acknowledgement. */
static __always_inline void on_packet(const struct port_config *config, struct flow *flow, __u32 psn, int asks)
{
	if (config->algorithm != TIMELY)
		return;
	if (flow->probe && ((flow->probe_psn - psn) & 0xffffff) < 1 << 23)
		flow->probe = NO_PROBE;
	if (!asks || flow->probe)
		return;
	flow->probe = PROBE_WAITS;
	flow->probe_psn = psn;
	flow->probe_number = flow->sent_packets + flow->queued_packets;
}

/* It starts on the link. */
static __always_inline void on_send(const struct port_config *config, struct control *control, struct flow *flow,
				    __u32 length, __u64 now)
{
	__u64 gap, line = line_rate(config);

	if (flow->probe == PROBE_WAITS && flow->probe_number == flow->sent_packets) {
		flow->probe = PROBE_SENT;
		flow->probe_at = now;
	}
	if (config->algorithm == HPCC && !flow->limited)
		begin_hpcc(flow, &control->hpcc, line, now);
	flow->sent_packets++;
	flow->sent_bytes += length;
	if (config->algorithm == DCQCN && flow->limited) {
		catch_up(flow, &control->dcqcn, line, now);
		if (flow->limited)
			count_bytes(flow, &control->dcqcn, line, length);
	}
	if (!flow->limited)
		return;
	gap = length * 8000000000ULL / (flow->rate ?: 1);
	/* HPCC's rate is of its window: what that held does not come on top (UpdateNextAvail of the authors' simulator). */
	if (flow->next_at + (config->algorithm == HPCC ? 0 : gap) < now)
		flow->next_at = now;
	flow->next_at += gap;
}

/* An acknowledgement came. */
static __always_inline void on_ack(const struct port_config *config, struct control *control, struct flow *flow, __u32 psn,
				   __u64 now)
{
	if (flow->probe != PROBE_SENT || ((psn - flow->probe_psn) & 0xffffff) >= 1 << 23)
		return;
	flow->probe = NO_PROBE;
	adapt(flow, &control->timely, line_rate(config), now - flow->probe_at);
}
#endif
