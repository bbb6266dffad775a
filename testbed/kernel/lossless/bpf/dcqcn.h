/* DCQCN's reaction point ("Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 5): the rate of a queue
 * pair. Its timers run when somebody looks: what they would have done by then is caught up with. */
#ifndef DCQCN_H
#define DCQCN_H
#include "layout.h"

#define CATCH_UP 65536 /* timer events at a look, at most: a queue pair that was silent is at its link's rate before */

static __always_inline void increase(struct flow *flow, const struct dcqcn *values, __u64 line)
{
	__u64 most = MAX(flow->time_stage, flow->byte_stage), least = MIN(flow->time_stage, flow->byte_stage);

	if (least > values->stages)
		flow->target += values->hai * (least - values->stages);
	else if (most > values->stages)
		flow->target += values->ai;
	if (flow->target > line)
		flow->target = line;
	flow->rate = (flow->rate + flow->target) >> 1;
	if (flow->rate + (line >> 10) >= line) {
		flow->rate = flow->target = line;
		flow->limited = 0;
	}
}
GLOBAL int catch_up(struct flow *flow, struct dcqcn *values, __u64 line, __u64 now)
{
	int i;

	if (!flow || !values)
		return 0;
	bpf_for(i, 0, CATCH_UP)
	{
		__u64 alpha_at = flow->alpha_at + values->alpha_ns, increase_at = flow->increase_at + values->increase_ns;

		if (!flow->limited || (alpha_at > now && increase_at > now))
			break;
		if (alpha_at <= increase_at) {
			flow->alpha -= flow->alpha * values->g >> 16;
			flow->alpha_at = alpha_at;
		} else {
			flow->increase_at = increase_at;
			flow->time_stage++;
			increase(flow, values, line);
		}
	}
	return 0;
}
GLOBAL int cut(struct flow *flow, struct dcqcn *values, __u64 line, __u64 now)
{
	__u64 least;

	if (!flow || !values)
		return 0;
	if (flow->limited) {
		catch_up(flow, values, line, now);
	}
	flow->cnps++;
	if (!flow->limited) {
		flow->limited = 1;
		flow->rate = flow->target = values->first ? MIN(values->first, line) : line;
		flow->alpha = values->initial_alpha << 4;
	} else if (values->monitor_ns && now - flow->cut_at < values->monitor_ns) {
		return 0;
	}
	flow->cut_at = now;
	if (values->clamp || flow->byte_stage || (values->clamp_after_time && flow->time_stage))
		flow->target = flow->rate;
	least = MAX(flow->rate * values->min_dec >> 16, values->least);
	flow->rate -= flow->rate * flow->alpha >> 21;
	if (flow->rate < least)
		flow->rate = least;
	flow->alpha = flow->alpha - (flow->alpha * values->g >> 16) + (values->g << 4);
	flow->alpha_at = flow->increase_at = now;
	flow->time_stage = flow->byte_stage = flow->bytes = 0;
	return 0;
}
static __always_inline void count_bytes(struct flow *flow, const struct dcqcn *values, __u64 line, __u32 length)
{
	flow->bytes += length;
	if (values->increase_bytes && flow->bytes >= values->increase_bytes) {
		flow->bytes -= values->increase_bytes;
		flow->byte_stage++;
		increase(flow, values, line);
	}
}
#endif
