/*
 * Approvals, leases, stop, and the move of a device between two nodes, as one model.
 * README.md explains it in plain words and lists the mutations.
 *
 * Callers are on node A. The device is connected to A or to B, and moves. A call to a
 * device on A is served there; to one on B, it is a message. The model is one process:
 * every transition is an option of the loop at the end, and is one atomic step, because
 * the Go code makes it under a lock or by one write. Everything between two transitions
 * can be interrupted by a crash, by a move, and by everything else.
 *
 * A transition is an inline. Its name stands in the Go code where the code makes it, as
 * a comment "// model: NAME". Transitions whose name begins with env_ are made by the
 * world.
 */

#define A 0
#define B 1
#define NOWHERE 2
#define other(n) (1 - (n))

/*
 * Scopes. Everything at once has too many states, so the model is checked in scopes: each
 * has some of the parts in detail, and the last one has a little of everything. Every
 * execution ends, because all that could go on forever is counted.
 */
bool asks;    /* calls need approval */
bool leases;  /* calls have leases */
bool retries; /* the first call can be sent again */
bool resumes; /* a person resumes */
byte calls, max_stops, max_crashes, max_moves, max_losses;

/*
 * Properties. A violation is counted, and its execution ends there. The checker prints
 * the counts when it has seen every state. Transitions are counted as well.
 */
#define RUN_ONCE 0      /* no call runs twice */
#define STOPPED 1       /* nothing changes after a stop is acknowledged */
#define LEASE_ENDS 2    /* every lease ends */
#define APPROVAL_ONCE 3 /* an approval is used at most once */
#define APPROVED_RUNS 4 /* a call runs only if a person approved it */
#define STOP_SPREADS 5  /* every node hears of a stop, and of its end */

bool broken; /* a property is violated */

#ifdef SIMULATE
#define count_violation(p) skip
#define begin_counting() skip
#else
c_decl {
	static char *properties[] = {"run_once", "stopped", "lease_ends", "approval_once", "approved_runs", "stop_spreads"};
	static long violations[6];
	static struct { char *name; long count; } steps[512];
	static void taken(char *name) {
		int i;
		for (i = 0; steps[i].name && steps[i].name != name; i++) {}
		steps[i].name = name;
		steps[i].count++;
	}
	static void report(void) {
		int i;
		for (i = 0; i < 6; i++) printf("property %ld %s\n", violations[i], properties[i]);
		for (i = 0; steps[i].name; i++) printf("taken %ld %s", steps[i].count, steps[i].name);
	}
	static void begin(void) {
		static int begun;
		if (!begun++) atexit(report);
	}
}
#define count_violation(p) c_code { violations[p]++; }
#define begin_counting() c_code { begin(); }
#endif

/*
 * SIMULATE prints one random execution: before each step the state, then the step. There
 * a stop is stored and ends what was admitted at once, because the code offers no way to
 * interrupt it in between.
 */
#ifdef SIMULATE
#define show_state() \
	printf("state up %d %d approvals %d %d %d %d", up[A], up[B], approval[0], approval[1], approval[2], approval[3]); \
	printf(" stops %d %d %d %d leases %d %d", known[A], lifted[A], known[B], lifted[B], lease[A], lease[B]); \
	printf(" link %d on %d\n", link, on)
byte made, first, gap; /* faults come when some steps were made */
bool cut; /* the cluster is out of reach when a lease is stored */
#define in_reach (!cut)
#define out_of_reach cut
#define restless (made >= first + gap * (crashes + moves + losses))
#define step(text, x) made++; show_state(); printf(text, x)
#else
#define in_reach true
#define out_of_reach true
#define restless true
#define show_state() skip
#ifdef COUNT
#define step(text, x) printf(text, x); c_code { taken(text); }
#else
#define step(text, x) printf(text, x)
#endif
#endif

#ifdef TRACE /* ends the search at a violation of this property, for a counterexample */
#define trace(p) assert(p != TRACE)
#else
#define trace(p) skip
#endif

#define check(p, holds) if :: holds :: else -> broken = true; count_violation(p); trace(p) fi

/* ---- state ---- */

/* Nodes. Memory is lost in a crash; variables marked "disk" are not. */
bool up[2] = true;
bool dead[2];  /* it does not start again */
byte boot;     /* runs of B: calls are addressed to one of them */
byte link;     /* the node to which the device is connected */
byte crashes, moves, losses;

/*
 * Attempts. Call 0 can be sent twice, as attempts 0 and 1; call 1 is attempt 2. A
 * message that is sent can arrive at any time later, again, or never.
 */
#define ATTEMPTS 3
#define CALL(i) ((i) / 2)
#define IDLE 0
#define WAITING 1
#define GONE 2
byte caller[2];          /* of each call */
bool message[ATTEMPTS];  /* it was sent to B */
byte addressed[ATTEMPTS];/* to this run of B */

/* The inbox of B: what it knows about an attempt. */
#define ARRIVED 1
#define FORGOTTEN 2      /* too old to be remembered: below the floor */
byte inbox[ATTEMPTS];

/* The stages of the pipeline that an attempt has passed, at the node that serves it. */
#define NEW 0
#define ENTERED 1   /* resolved and validated; needs approval */
#define APPROVED 2
#define ADMITTED 3  /* by stop */
#define ARMED 4     /* its lease is stored; may be sent to the device at any time */
#define ENDED 5
#define REJECTED 6  /* the device is not here: certainly not run */
byte stage[ATTEMPTS];
byte at[ATTEMPTS];

/*
 * Approvals, on the disk of each node. What a call asks for is 0 or 1: who, which
 * device, tool and arguments. The calls ask for the same, or not.
 */
#define NONE 0
#define ASKED 1
#define ALLOWED 2
#define USED 3
bool same;
#define CONTENT(i) (same -> 0 : CALL(i))
#define APPROVAL(n, i) ((n) * 2 + CONTENT(i))
byte approval[4];
#ifdef NO_DENY_DISK
bool denied[4];
#endif

/*
 * Stop. Each stop has a bit. A node is stopped if it knows a stop that no resume that it
 * knows has lifted. Nodes send each other all they know.
 */
byte stops;         /* how many there were */
byte known[2];      /* stops that a node knows, in memory */
byte stored[2];     /* disk */
byte lifted[2];     /* disk */
byte sent_known[2]; /* the last message to a node */
byte sent_lifted[2];
#ifdef NO_STOP_RESEND
byte told_known[2];
byte told_lifted[2];
#endif
#define stopped(n) ((known[n] & ~lifted[n]) != 0)

/* Leases. The lease of attempt i is i + 1; 0 is none. */
byte lease[2];       /* disk */
byte shared;         /* the cluster's store */
bool over;           /* another node has ended the lease in the store */

/* What is true, whether a node knows it or not. */
byte ran[2];         /* how often each call ran */
bool agreed[4];      /* a person gave this approval */
byte used[4];        /* how often it was used */
bool entitled[ATTEMPTS]; /* a valid approval of a person was used for it */
byte resumed;        /* stops that a person lifted */
byte acked[2];       /* other stops, that a node acknowledged */
byte on;             /* the lease under which the device is on; 0 if it is off */
bool alone[ATTEMPTS];/* its lease could not be copied: the cluster was out of reach */

/*
 * ---- guards: each can be removed by a mutation ----
 *
 * Those of calls are removed only in the scope where calls are sent again: in the others,
 * an attempt that is served twice would have the same lease twice.
 */

#ifdef NO_DEDUP
#define unseen(i) (inbox[i] == 0 || stage[i] == ENDED && retries)
#else
#define unseen(i) (inbox[i] == 0)
#endif

#ifdef NO_BOOT
#define addressed_here(i) (addressed[i] == boot || retries)
#else
#define addressed_here(i) (addressed[i] == boot)
#endif

#ifdef NO_TOMBSTONE
#define TOMBSTONE 0
#else
#define TOMBSTONE ARRIVED
#endif

#ifdef NO_ASK
#define certain(i) true
#else
#define certain(i) (stage[i] == REJECTED)
#endif

#ifdef NO_FLOOR
#define FLOOR 0
#else
#define FLOOR FORGOTTEN
#endif

#ifdef NO_HOLDER_ASKS
#define first_stage(i) (asks && at[i] == A -> ENTERED : APPROVED)
#else
#define first_stage(i) (asks -> ENTERED : APPROVED)
#endif

#ifdef NO_BINDING
#define USABLE(i) (at[i] * 2) /* whatever it was given for */
#else
#define USABLE(i) APPROVAL(at[i], i)
#endif

#ifdef NO_EXPIRY
#define AFTER_EXPIRY ALLOWED
#else
#define AFTER_EXPIRY NONE
#endif

#ifdef NO_USED_MARK
#define AFTER_USE ALLOWED
#else
#define AFTER_USE USED
#endif

#ifdef SIMULATE
bool ended[ATTEMPTS]; /* by a stop after it was admitted */
#define end_admitted(i, n) ended[i] = ended[i] || at[i] == (n) && (stage[i] == ADMITTED || stage[i] == ARMED) && stopped(n)
#define stop_now(n) stored[n] = known[n]; end_admitted(0, n); end_admitted(1, n); end_admitted(2, n)
#define may_send(i) (!ended[i])
#else
#define stop_now(n) skip
#define may_send(i) true
#endif

#ifdef NO_STOP_CHECK
#define admits(n) true
#else
#define admits(n) (!stopped(n))
#endif

#ifdef NO_STOP_DRAIN
#define drained(n) true
#else
#define in_flight(i, n) (at[i] == (n) && (stage[i] == ADMITTED || stage[i] == ARMED))
#define drained(n) (!in_flight(0, n) && !in_flight(1, n) && !in_flight(2, n))
#endif

#ifdef NO_STOP_DISK
#define durable(n) true
#else
#define durable(n) (stored[n] == known[n])
#endif

#ifdef NO_STOP_OBSERVED
#define lifts(n) 3
#else
#define lifts(n) known[n]
#endif

#ifdef NO_STOP_MERGE
#define merged(mine, theirs) (theirs)
#else
#define merged(mine, theirs) ((mine) | (theirs))
#endif

#ifdef NO_STOP_RESEND
#define untold(n) (told_known[n] != known[n] || told_lifted[n] != lifted[n])
#else
#define untold(n) (sent_known[other(n)] != known[n] || sent_lifted[other(n)] != lifted[n])
#endif

#ifdef NO_STOP_AGAIN
#define new_stop(n) (stopped(n) -> 0 : 1 << stops)
#else
#define new_stop(n) (1 << stops)
#endif

#ifdef NO_FENCE
#define unfenced(i) true
#define fence(i, n) skip
#else
#define unfenced(i) (link != other(at[i]))
#define fence(i, n) if :: at[i] == other(n) && (stage[i] == ADMITTED || stage[i] == ARMED) -> stage[i] = ENDED; entitled[i] = false :: else fi
#endif

#ifdef NO_LEASE_FIRST
#define READY ADMITTED
#define ARM_FROM ARMED
#define AFTER_ARM ENDED
#else
#define ARM_FROM ADMITTED
#define AFTER_ARM ARMED
#define READY ARMED
#endif

#ifdef NO_LEASE_PENDING
#define pending(n) false
#else
#define armed(i, n) (at[i] == (n) && stage[i] == ARMED)
#define pending(n) (armed(0, n) || armed(1, n) || armed(2, n))
#endif

#ifdef NO_LEASE_ID
#define ended_elsewhere(n) (over && lease[n] != 0)
#else
#define ended_elsewhere(n) (over && lease[n] == shared && shared != 0)
#endif

#ifdef NO_LEASE_SHARE
#define shares_again false
#else
#define shares_again true
#endif

#ifdef NO_LEASE_IN_STOP
#define may_end(n) (!stopped(n))
#else
#define may_end(n) true
#endif

/* ---- calls ---- */

/* A local call enters the pipeline of A. */
inline call_enter(i) {
	step("call_enter %d\n", i);
	caller[CALL(i)] = WAITING;
	at[i] = A;
	entitled[i] = !asks;
	stage[i] = first_stage(i)
}

/* A call is sent to B, where A last knew the device to be. */
inline call_send(i) {
	step("call_send %d\n", i);
	caller[CALL(i)] = WAITING;
	message[i] = true;
	addressed[i] = boot
}

/* B takes a call, for the first time. */
inline call_accept(i) {
	step("call_accept %d\n", i);
	inbox[i] = ARRIVED;
	at[i] = B;
	entitled[i] = !asks && link == B;
	if
	:: link == B -> stage[i] = first_stage(i)
	:: else -> stage[i] = REJECTED
	fi
}

/* B is asked about a call that has not arrived. It will not be served if it does. */
inline call_missed(i) {
	step("call_missed %d\n", i);
	inbox[i] = TOMBSTONE;
	at[i] = B;
	stage[i] = REJECTED
}

/* B drops what it knows about an old call. */
inline call_forget(i) {
	step("call_forget %d\n", i);
	inbox[i] = FLOOR
}

/* The device gets a call. */
inline call_run(i) {
	step("call_run %d\n", i);
	ran[CALL(i)]++;
	on = (leases -> i + 1 : 0);
	stage[i] = ENDED;
	check(RUN_ONCE, ran[CALL(i)] <= 1);
	check(STOPPED, acked[at[i]] == 0);
	check(APPROVED_RUNS, entitled[i]);
	entitled[i] = false
#ifdef NO_LEASE_MAYBE
	;
	if
	:: lease[at[i]] == i + 1 -> lease[at[i]] = 0; shared = 0
	:: else
	fi
#endif
#ifdef NO_LEASE_FIRST
	;
	stage[i] = ARMED
#endif
}

/* A call ends and certainly did not run: the device refused it, or is not here. */
inline call_fail(i) {
	step("call_fail %d\n", i);
	entitled[i] = false;
	stage[i] = ENDED
#ifdef NO_LEASE_KEEP
	;
	if
	:: lease[at[i]] == i + 1 -> lease[at[i]] = 0; shared = 0
	:: else
	fi
#endif
}

/* ---- approvals ---- */

inline approve_ask(i) {
	step("approve_ask %d\n", i);
	approval[APPROVAL(at[i], i)] = ASKED;
	agreed[APPROVAL(at[i], i)] = false;
	used[APPROVAL(at[i], i)] = 0
}

/* A person allows what is asked. */
inline approve_allow(a) {
	step("approve_allow %d\n", a);
	approval[a] = ALLOWED;
	agreed[a] = true;
	used[a] = 0
}

inline end_waiting(a, i) {
	if
	:: stage[i] == ENTERED && APPROVAL(at[i], i) == (a) -> stage[i] = ENDED
	:: else
	fi
}

/* A person denies it, or takes an approval back. The calls that wait for it end. */
inline approve_deny(a) {
	step("approve_deny %d\n", a);
#ifdef NO_DENY_DISK
	if
	:: approval[a] == ALLOWED -> denied[a] = true
	:: else
	fi;
#endif
	approval[a] = NONE;
	agreed[a] = false;
	end_waiting(a, 0);
	end_waiting(a, 1);
	end_waiting(a, 2)
}

/* The time of a request, or of an approval that nobody used, is up. */
inline approve_expire(a) {
	step("approve_expire %d\n", a);
	if
	:: approval[a] == ALLOWED -> approval[a] = AFTER_EXPIRY
	:: else -> approval[a] = NONE
	fi;
	agreed[a] = false;
	end_waiting(a, 0);
	end_waiting(a, 1);
	end_waiting(a, 2)
}

#ifdef NO_APPROVER_CHECK
/* The caller answers its own question. */
inline self_approval(a) {
	approval[a] = ALLOWED;
	agreed[a] = false;
	used[a] = 0
}
#endif

/* A waiting call uses an approval up. */
inline approve_use(i) {
	step("approve_use %d\n", i);
	entitled[i] = agreed[USABLE(i)] && USABLE(i) == APPROVAL(at[i], i);
	used[USABLE(i)]++;
	check(APPROVAL_ONCE, used[USABLE(i)] <= 1);
	approval[USABLE(i)] = AFTER_USE;
	stage[i] = APPROVED
}

/* ---- stop ---- */

inline stop_admit(i) {
	step("stop_admit %d\n", i);
	stage[i] = (leases -> ADMITTED : READY)
}

inline stop_refuse(i) {
	step("stop_refuse %d\n", i);
	entitled[i] = false;
	stage[i] = ENDED
}

/* What was admitted before the stop is cancelled, if it has not run. */
inline stop_cancel(i) {
	step("stop_cancel %d\n", i);
	entitled[i] = false;
	stage[i] = ENDED
}

/* Somebody stops node n. From here on it admits nothing. */
inline stop_set(n) {
	step("stop_set %d\n", n);
	known[n] = known[n] | new_stop(n);
	stops++;
	stop_now(n)
#ifdef NO_STOP_AGAIN
	;
	resumed = resumed & ~(known[n] & ~lifted[n]) /* they stand for this stop as well */
#endif
}

inline stop_store(n) {
	step("stop_store %d\n", n);
	stored[n] = known[n]
}

/* Node n says that it is stopped. */
inline stop_ack(n) {
	step("stop_ack %d\n", n);
	acked[n] = (acked[n] | (known[n] & ~lifted[n])) & ~resumed
}

/* Node n tells the other one what it knows. The message can be late. */
inline stop_send(n) {
	step("stop_send %d\n", n);
	sent_known[other(n)] = known[n];
	sent_lifted[other(n)] = lifted[n]
#ifdef NO_STOP_RESEND
	;
	told_known[n] = known[n];
	told_lifted[n] = lifted[n]
#endif
}

inline stop_hear(n) {
	step("stop_hear %d\n", n);
	known[n] = merged(known[n], sent_known[n]);
	lifted[n] = merged(lifted[n], sent_lifted[n]);
	stored[n] = stored[n] | (known[n] & lifted[n]);
	stop_now(n)
}

/* A person resumes at node n. */
inline stop_resume(n) {
	step("stop_resume %d\n", n);
	resumed = resumed | known[n];
	acked[A] = acked[A] & ~resumed;
	acked[B] = acked[B] & ~resumed;
	stored[n] = known[n];
	lifted[n] = lifted[n] | lifts(n)
}

/* ---- leases ---- */

/* The lease is stored before its call reaches the device, and then copied. */
inline lease_arm(i) {
	step("lease_arm %d\n", i);
	lease[at[i]] = i + 1;
#ifndef NO_LEASE_COPY
	shared = i + 1;
	over = false;
#endif
	stage[i] = AFTER_ARM
}

/* The same while the cluster is out of reach: no other node knows the lease. */
inline lease_arm_alone(i) {
	step("lease_arm_alone %d\n", i);
	lease[at[i]] = i + 1;
	alone[i] = true;
	stage[i] = AFTER_ARM
}

/* Node n reaches the cluster again, and copies its lease, also after a restart. */
inline lease_share(n) {
	step("lease_share %d\n", n);
	shared = lease[n];
	over = false;
	alone[lease[n] - 1] = false
}

/* Node n has the device, and ends the lease that it has stored. */
inline lease_end(n) {
	step("lease_end %d\n", n);
	on = 0;
	lease[n] = 0;
	shared = 0;
	over = false
}

/* Node n has the device now, and ends a lease that the other node has stored. */
inline lease_take(n) {
	step("lease_take %d\n", n);
	on = 0;
	over = true
}

/* Another node has ended the lease of node n. */
inline lease_forget(n) {
	step("lease_forget %d\n", n);
	lease[n] = 0;
	shared = 0;
	over = false
}

/* ---- the world ---- */

inline lose(i, n) {
	if
	:: at[i] == (n) && stage[i] > NEW && stage[i] < ENDED -> stage[i] = ENDED; entitled[i] = false
	:: else
	fi
}

inline forget_caller(c) {
	if
	:: caller[c] == WAITING -> caller[c] = GONE
	:: else
	fi
}

/* A node loses its memory. */
inline env_crash(n) {
	step("env_crash %d\n", n);
	crashes++;
	up[n] = false;
	lose(0, n); lose(1, n); lose(2, n);
	known[n] = 0;
	if
	:: n == A -> forget_caller(0); forget_caller(1)
	:: else -> inbox[0] = 0; inbox[1] = 0; inbox[2] = 0; boot++
	fi;
	if
	:: link == (n) -> link = NOWHERE
	:: else
	fi
#ifdef NO_LEASE_DISK
	;
	lease[n] = 0
#endif
#ifdef NO_USED_DISK
	;
	reopen((n)*2); reopen((n)*2 + 1)
#endif
#ifdef NO_DENY_DISK
	;
	undeny((n)*2); undeny((n)*2 + 1)
#endif
}

#ifdef NO_USED_DISK
inline reopen(a) {
	if
	:: approval[a] == USED -> approval[a] = ALLOWED
	:: else
	fi
}
#endif

#ifdef NO_DENY_DISK
inline undeny(a) {
	if
	:: denied[a] && approval[a] == NONE -> approval[a] = ALLOWED
	:: else
	fi
}
#endif

inline env_die(n) {
	step("env_die %d\n", n);
	dead[n] = true
}

/* A node starts, and loads what is on its disk. */
inline env_start(n) {
	step("env_start %d\n", n);
	up[n] = true;
	known[n] = stored[n]
}

/* The last message to node n does not arrive. */
inline env_lose(n) {
	step("env_lose %d\n", n);
	losses++;
	sent_known[n] = 0;
	sent_lifted[n] = 0
}

/* The device connects to node n. */
inline env_attach(n) {
	step("env_attach %d\n", n);
	link = n;
	fence(0, n); fence(1, n); fence(2, n)
}

inline env_move(n) {
	step("env_move %d\n", n);
	moves++;
	link = n;
	fence(0, n); fence(1, n); fence(2, n)
}

/* Nothing can happen any more. */
inline at_rest() {
	check(LEASE_ENDS, on == 0 || link == NOWHERE || (alone[on - 1] && !up[at[on - 1]]));
	check(STOP_SPREADS, !up[A] || !up[B] || stopped(A) == stopped(B))
}

/* ---- the loop ---- */

#define serving(i) (up[at[i]])
#define may_retry (retries && caller[0] == WAITING && message[0] && !message[1] && stage[1] == NEW && certain(0))
#define option(guard, transition) :: d_step { !broken && (guard) -> transition }

#define attempt_options(i) \
	option(message[i] && up[B] && addressed_here(i) && unseen(i), call_accept(i)) \
	option(stage[i] == ENTERED && serving(i) && (approval[APPROVAL(at[i], i)] == NONE || approval[APPROVAL(at[i], i)] == USED), approve_ask(i)) \
	option(stage[i] == ENTERED && serving(i) && approval[USABLE(i)] == ALLOWED, approve_use(i)) \
	option(stage[i] == APPROVED && serving(i) && admits(at[i]), stop_admit(i)) \
	option(stage[i] == APPROVED && serving(i) && !admits(at[i]), stop_refuse(i)) \
	option((stage[i] == ADMITTED || stage[i] == ARMED) && stopped(at[i]), stop_cancel(i)) \
	option(stage[i] == ARM_FROM && unfenced(i) && in_reach, lease_arm(i)) \
	option(stage[i] == ARM_FROM && unfenced(i) && out_of_reach, lease_arm_alone(i)) \
	option(stage[i] == READY && link == at[i] && may_send(i), call_run(i)) \
	option(stage[i] == READY || stage[i] == ADMITTED && !unfenced(i), call_fail(i))

#define approval_options(a) \
	option(up[(a) / 2] && approval[a] == ASKED, approve_allow(a)) \
	option(up[(a) / 2] && (approval[a] == ASKED || approval[a] == ALLOWED && agreed[a]), approve_deny(a)) \
	option(up[(a) / 2] && (approval[a] == ASKED || approval[a] == ALLOWED && agreed[a]), approve_expire(a))

#define node_options(n) \
	option(up[n] && stops < max_stops, stop_set(n)) \
	option(up[n] && stored[n] != known[n], stop_store(n)) \
	option(up[n] && stopped(n) && ((acked[n] | (known[n] & ~lifted[n])) & ~resumed) != acked[n] && durable(n) && drained(n), stop_ack(n)) \
	option(up[n] && untold(n), stop_send(n)) \
	option(up[n] && (sent_known[n] | sent_lifted[n]) != 0 && (merged(known[n], sent_known[n]) != known[n] || merged(lifted[n], sent_lifted[n]) != lifted[n]), stop_hear(n)) \
	option(up[n] && stopped(n) && resumes, stop_resume(n)) \
	option(up[n] && link == (n) && lease[n] != 0 && !pending(n) && may_end(n), lease_end(n)) \
	option(up[n] && link == (n) && shared != 0 && !over && shared != lease[n] && !pending(n) && may_end(n), lease_take(n)) \
	option(up[n] && lease[n] != 0 && alone[lease[n] - 1] && shares_again, lease_share(n)) \
	option(up[n] && ended_elsewhere(n) && !pending(n), lease_forget(n)) \
	option(up[n] && crashes < max_crashes && restless, env_crash(n)) \
	option(losses < max_losses && restless && (sent_known[n] | sent_lifted[n]) != 0, env_lose(n)) \
	option(!up[n] && !dead[n], env_start(n)) \
	option(!up[n] && !dead[n] && !dead[other(n)], env_die(n)) \
	option(up[n] && link == NOWHERE, env_attach(n)) \
	option(up[n] && link == other(n) && moves < max_moves && restless, env_move(n))

#ifndef SCOPES
#define SCOPES 31 /* all */
#endif

init {
	if
#if SCOPES & 1 /* approvals, and calls that are sent again */
	:: d_step { asks = true; retries = true; calls = 2; max_crashes = 1; max_moves = 1 }
#endif
#if SCOPES & 2 /* stop and resume on both nodes */
	:: d_step { calls = 1; resumes = true; max_stops = 2; max_crashes = 1 }
#endif
#if SCOPES & 4 /* a stop whose message is lost */
	:: d_step { max_stops = 1; max_crashes = 1; max_losses = 1 }
#endif
#if SCOPES & 8 /* leases */
	:: d_step { leases = true; calls = 2; max_crashes = 2; max_moves = 2 }
#endif
#if SCOPES & 16 /* all of it, with one call, and one stop that nobody ends */
	:: d_step { asks = true; leases = true; calls = 1; max_stops = 1; max_crashes = 1; max_moves = 1 }
#endif
	fi;
	if
	:: link = A
	:: max_stops < 2 -> link = B
	fi;
	if
	:: same = true
	:: asks && calls == 2 -> same = false
	fi;
#ifdef SIMULATE
	select(first : 0 .. 8);
	select(gap : 1 .. 5);
	if
	:: cut = true
	:: cut = false
	fi;
	max_crashes = 3;
	max_moves = 3;
#endif
	printf("begin same %d\n", same);
	begin_counting();
	do
	option(calls >= 1 && caller[0] == IDLE && up[A] && link == A, call_enter(0))
	option(calls == 2 && caller[1] == IDLE && up[A] && link == A, call_enter(2))
	option(calls >= 1 && caller[0] == IDLE && up[A] && link != A && up[B], call_send(0))
	option(calls == 2 && caller[1] == IDLE && up[A] && link != A && up[B], call_send(2))
	option(may_retry && link == A, call_enter(1))
	option(may_retry && link != A && up[B], call_send(1))
	option(caller[0] == WAITING && message[0] && up[B] && addressed[0] == boot && inbox[0] == 0 && retries, call_missed(0))
	option(retries && stage[0] == ENDED && at[0] == B && up[B] && inbox[0] == ARRIVED, call_forget(0))
	attempt_options(0)
	attempt_options(1)
	attempt_options(2)
	approval_options(0)
	approval_options(1)
	approval_options(2)
	approval_options(3)
#ifdef NO_APPROVER_CHECK
	option(up[A] && approval[0] == ASKED, self_approval(0))
#endif
	node_options(A)
	node_options(B)
	:: else -> break
	od;
	skip; /* a loop must not end in a d_step */
	d_step {
		show_state();
		if
		:: broken
		:: else -> at_rest()
		fi
	}
}
