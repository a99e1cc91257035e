// Package hostile attacks the example agent: its runtime lies, fails and hangs, its
// manifests are senseless, its probes and hooks go to bad servers, its pods die, and
// it is killed again and again. Meanwhile nothing may exist twice, nothing that is
// not the agent's may change, and afterwards all must be well again.
//
// # Running it
//
//	make hostile-short                                # a run of 15 s, always with the same seed
//	make hostile                                      # ten minutes with fresh seeds
//	make hostile HOSTILE_FOR=1h
//	make hostile HOSTILE_FOR=1s HOSTILE_SEED=4711     # one run with this seed
//	KUBEPARTS_AGENT=/path/to/agent make hostile       # such as one built with -race
//
// It needs Linux and no root. A run prints what it tried. A finding fails the test with
// its seed, its phase, what was observed, and what the agent printed last. A seed repeats
// what is attacked and how, not when the kernel lets the processes run.
//
// # How it is put together
//
//	agent (a process) -> proxy -> fakecri <- monitor
//	  ^ manifests         ^ attack   ^ deaths
//
// The agent is the binary of examples/minimal-agent. The proxy is a CRI server that
// forwards all methods to a node of fakecri, by the descriptors of the protobuf messages.
// A run is a list of phases; in each the proxy carries out an attack, hostile manifests
// come, change and go, and, as the phase wants it, the agent is killed and containers,
// sandboxes and the runtime die. After each phase the attack ends, and the pods that are
// well-formed must run again.
//
// What a call may suffer: it fails with each code in turn, before the runtime has done it
// or after; it hangs until the caller gives up or the phase is over; its answer comes late;
// fields of the answer are cleared, repeated, mixed up or extreme; bytes of it are wrong.
// Lists may also ignore their filter and name pods that do not exist. False events
// come in between the true ones, as fast as the agent reads.
//
// # What is required
//
// Always: the agent does not end by itself, other than at once on a runtime that does not
// answer, and prints no race; /livez answers in time; memory, descriptors and goroutines
// stay below bounds; SIGTERM ends it in time with code 0; no sandbox or container that is
// not the agent's changes, and no call would have changed one. When an attack is over, each
// well-formed pod has one ready sandbox and its containers, and nothing is there twice. When
// all manifests are removed, nothing of the agent's is left.
//
// Every 70 ms, past the proxy: no pod UID has two ready sandboxes, and no container of a pod
// runs twice. This is not required from the beginning of a phase with wrong answers until the
// agent has recovered from it. An agent knows what exists from answers only: it cannot avoid to
// make what the runtime denies to have. Failures, hangs, late and lost answers, false events and
// kills excuse nothing, and neither do foreign pods in a list, whose labels show that they are.
// For the same reason the well-formed pods are written anew after a phase with wrong
// answers: a pod that was told to have ended for good has.
package hostile
