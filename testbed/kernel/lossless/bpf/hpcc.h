/* HPCC (SIGCOMM 2019, algorithm 1): the window of a queue pair by what each hop was doing when a packet left by it. */
#ifndef HPCC_H
#define HPCC_H
#include "layout.h"

#define ONE (1 << 16)
#define NO_PSN (1 << 24)
#define SILENT 16 /* base round trips without an echo after which a window no longer holds a queue pair back */

/* What a packet met: the queue, the bytes so far and the rate of each port that it left by. */
struct hop {
	__u64 at, bytes;
	__u32 port, queue;
	__u64 ns_per_kib;
};
struct journey {
	__u64 sent_bytes; /* of its queue pair, this packet included */
	__u32 psn, hops;
	struct hop hop[HOPS];
};

static __always_inline __u64 window_of_line(const struct hpcc *values, __u64 line)
{
	return line / 1000 * (values->rtt_ns / 1000) / 8000;
}
static __always_inline void begin_hpcc(struct flow *flow, const struct hpcc *values, __u64 line, __u64 now)
{
	flow->limited = 1;
	flow->rate = flow->target = line;
	flow->window = flow->reference = window_of_line(values, line);
	flow->stage = flow->rtts = 0;
	flow->use = ONE;
	flow->acked_bytes = flow->sent_bytes;
	flow->echo_at = now;
	flow->update_psn = NO_PSN;
}

/* The part of the path's bandwidth that is in use and under way, in 1/65536; of its busiest hop. */
static __always_inline void measure(struct flow *flow, struct journey *last, const struct journey *now,
				    const struct hpcc *values)
{
	__u64 most = 0, tau = 0, rtt = values->rtt_ns ?: 1;
	__u32 i;

	for (i = 0; i < HOPS; i++) {
		const struct hop *hop = &now->hop[i], *before = &last->hop[i];
		__u64 time, part;

		if (i >= now->hops)
			break;
		if (hop->port != before->port || hop->at <= before->at)
			continue;
		time = hop->at - before->at;
		part = ((hop->bytes - before->bytes) * hop->ns_per_kib << 6) / time;
		part += ((__u64)MIN(hop->queue, before->queue) * hop->ns_per_kib << 6) / rtt;
		if (part > most) {
			most = part;
			tau = time;
		}
	}
	tau = MIN(tau, rtt);
	flow->use = flow->use - flow->use * tau / rtt + most * tau / rtt;
	*last = *now;
}

/* The echo of a packet came. */
GLOBAL int on_telemetry(struct flow *flow, struct journey *last, struct journey *now, struct hpcc *values, __u64 line)
{
	__u64 window, most;
	int update;

	if (!flow || !last || !now || !values)
		return 0;
	if (!now->hops) /* it went through a tunnel, or ports without telemetry: nothing is known */
		return 0;
	if (!flow->rtts++) { /* nothing is known yet that it could be compared with */
		*last = *now;
		return 0;
	}
	measure(flow, last, now, values);
	update = ((now->psn - flow->update_psn) & 0xffffff) < 1 << 23;
	if (flow->use >= values->eta || flow->stage >= values->stages) {
		window = flow->reference * values->eta / (flow->use ?: 1) + values->ai_bytes;
		if (update)
			flow->stage = 0;
	} else {
		window = flow->reference + values->ai_bytes;
		if (update)
			flow->stage++;
	}
	most = window_of_line(values, line);
	window = MAX(MIN(window, most), values->least_bytes);
	if (update) {
		flow->reference = window;
		flow->update_psn = flow->next_psn;
	}
	flow->window = window;
	flow->rate = MIN(window * 8000 / (values->rtt_ns / 1000 ?: 1) * 1000, line);
	return 0;
}
/* When a window lets a queue pair send: 0 at once, else the time at which it does whatever comes. */
static __always_inline __u64 window_opens(const struct flow *flow, const struct hpcc *values, __u64 now)
{
	__u64 silent = flow->echo_at + SILENT * values->rtt_ns;

	return flow->sent_bytes - flow->acked_bytes < flow->window || silent <= now ? 0 : silent;
}
#endif
