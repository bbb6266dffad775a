/* What the program shares with Python. */
#define ENDS 4096
#define EGRESS 0
#define INGRESS 1

/* Where packets of a direction of a link pass: a network namespace by its cookie, an interface, and a way through it. */
struct place {
	__u64 net;
	__u32 ifindex;
	__u32 way;
};

/* What becomes of them. Probabilities are shares of 2^32 - 1. `into` and `out` are Gilbert's: into the state in which all
 * are lost, and out of it. The port `net` and `ifindex` is the one that they do not reach: it counts the damaged ones. */
struct impairment {
	__u32 loss;
	__u32 into;
	__u32 out;
	__u32 bad;
	__u32 corrupt;
	__u32 ifindex;
	__u64 net;
};
