/* TIMELY (SIGCOMM 2015, section 4.3): the rate of a queue pair by the round trips of its packets. Marks have no part in it. */
#ifndef TIMELY_H
#define TIMELY_H
#include "layout.h"

/* A round trip was measured. */
GLOBAL int adapt(struct flow *flow, struct timely *values, __u64 line, __u64 rtt)
{
	__u64 cut = 0;
	__s64 change;

	if (!flow || !values)
		return 0;
	if (!flow->limited) {
		flow->limited = 1;
		flow->rate = line;
		flow->rtt = rtt;
		flow->gradient = 0;
	}
	change = (__s64)rtt - (__s64)flow->rtt - flow->gradient;
	flow->gradient += change * (__s64)values->ewma >> 16;
	flow->rtt = rtt;
	flow->rtts++;
	flow->falling = rtt <= values->high_ns && flow->gradient <= 0 ? flow->falling + 1 : 0;
	if (rtt > values->high_ns)
		cut = values->beta - values->beta * values->high_ns / rtt;
	else if (rtt >= values->low_ns && flow->gradient > 0)
		cut = values->beta * (__u64)flow->gradient / (values->least_rtt_ns ?: 1);
	if (cut)
		flow->rate -= flow->rate * MIN(cut, 1 << 15) >> 16; /* halved at most, as its authors' code does */
	else
		flow->rate += values->ai * (flow->falling >= values->hyper_after ? values->hyper_steps : 1);
	flow->rate = MIN(MAX(flow->rate, values->least), line);
	return 0;
}
#endif
