/* The arithmetic of congestion control for this machine's processor, as a library. */
typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
#define __always_inline inline __attribute__((always_inline))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define GLOBAL
#define bpf_for(i, start, end) for ((i) = (start); (i) < (end); (i)++)
#include "dcqcn.h"
#include "timely.h"
#include "hpcc.h"

void begin(struct flow *flow, struct hpcc *values, __u64 line, __u64 now)
{
	begin_hpcc(flow, values, line, now);
}
void sent(struct flow *flow, struct dcqcn *values, __u64 line, __u32 length)
{
	count_bytes(flow, values, line, length);
}
