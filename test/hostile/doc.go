// Package hostile attacks the example agent: its runtime returns wrong responses, fails and
// hangs, its manifests are invalid, its probes and hooks connect to misbehaving servers,
// its pods are killed, and the agent itself is killed again and again. During an attack no
// pod or container may run twice, except if responses are wrong, and no object of another
// client may change. After the attack the agent must recover completely.
//
// # Running it
//
//	make hostile-short                                # a run of 15 s, always with the same seed
//	make hostile                                      # ten minutes with fresh seeds
//	make hostile HOSTILE_FOR=1h
//	make hostile HOSTILE_FOR=1s HOSTILE_SEED=4711     # one run with this seed
//	KUBEPARTS_AGENT=/path/to/agent make hostile       # such as one built with -race
//
// It needs Linux, but not root. A run prints statistics of its attacks. A finding fails the
// test with its seed, its phase, the observation, and the last output of the agent. A seed
// reproduces the attacks, but not the scheduling of the processes.
//
// # How it is put together
//
//	agent (a process) -> proxy -> fakecri <- monitor
//	  ^ manifests         ^ attack   ^ deaths
//
// The agent is the binary of examples/minimal-agent. The proxy is a CRI server that
// forwards all methods to a node of fakecri, by the descriptors of the protobuf messages. A
// run is a list of phases. In each phase the proxy carries out an attack, and hostile
// manifests are added, changed and removed. In some phases the agent, containers, sandboxes
// or the runtime are killed too. After each phase the attack ends, and the well-formed pods
// must run again.
//
// The proxy attacks a call in one of these ways:
//
//   - The call fails before or after the runtime has executed it, with each error code in turn.
//   - The call hangs until the caller gives up or the phase is over.
//   - The response is delayed.
//   - Fields of the response are cleared, repeated, swapped or set to extreme values.
//   - Bytes of the response are changed.
//
// Lists may also ignore their filter or contain pods that do not exist. The proxy sends false
// events between the true events, as fast as the agent reads.
//
// # What is required
//
// Always:
//
//   - The agent does not exit by itself, except at its start if the runtime does not respond.
//   - The agent reports no data race.
//   - /livez responds in time.
//   - Memory, file descriptors and goroutines stay below limits.
//   - After SIGTERM, the agent exits in time with code 0.
//   - The agent changes no sandbox or container of another client, and sends no call that
//     would change such an object.
//
// When an attack is over, each well-formed pod has one ready sandbox and its containers, and
// no object exists twice. When all manifests are removed, no object of the agent is left.
//
// Every 70 ms, the monitor checks the node itself: no pod UID has two ready sandboxes, and
// no container of a pod runs twice. The monitor also checks this during failures, hangs,
// delayed and lost responses, false events and kills, and while lists contain pods of other
// clients, which the agent can recognise by their labels.
//
// There is one exception. In a phase with wrong responses, objects may exist twice until the
// agent has recovered from this phase. An agent knows the existing objects only from
// responses, and must create what the runtime reports as missing. After such a phase, the
// test writes the manifests of the well-formed pods with new content, because an agent does
// not start a pod again that was reported as finished.
package hostile
