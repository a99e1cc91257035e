// Package eviction compares our eviction manager with the kubelet's, pass by pass.
//
// In this package, a turn is one pass of the kubelet's manager, which it calls synchronize. A
// look is one evaluation of our manager. A figure is a measured amount, such as the available
// memory.
//
// # What is compared
//
// The kubelet's manager runs in its own loop, in a testing/synctest bubble. Our manager
// evaluates at the same moments: 10 s after the previous turn, or when the pods that a turn
// has evicted are cleaned up. The test waits for the cleanup as the kubelet does. After a
// disk reclaim, our manager evaluates again at once, as Manager.Run does. In half of the
// worlds it also evaluates at other times, while the kubelet waits. A step is one turn; the
// looks until the next turn are a separate step. The facts of a turn are
//
//   - for each signal, the thresholds that are met, the thresholds that are not yet
//     resolved, those that are due, and those that are due with a new figure. The test
//     reads the kubelet's thresholds from its log;
//   - the node conditions, and the admission results of fourteen pods;
//   - the container and image collections, in order, and whether they ran
//     concurrently;
//   - the whole eviction order of pods;
//   - the killed pods, in order. Each has its reason, which is a resource and a quantity,
//     or a limit. Each also has its grace period, its event with annotations, and the
//     status that the kill writes;
//   - the events of the node, and the start of the turn.
//
// A look between turns has one fact: all thresholds with their states, the conditions,
// whether the manager requested pod figures, the overdue pods, and the whole decision. The
// kubelet does not have such looks, and rules compute ours. If our manager acts in such a
// look, the scenario ends.
//
// A second comparison is of settings: ParseThresholds and the flags against the kubelet's
// parser and defaults, the texts of conditions, and [eviction.Policy.Validate].
//
// # The worlds
//
// A world draws
//
//   - thresholds of all signals, hard and soft, as amounts and percentages, with grace
//     periods and minimum reclaims;
//   - the three layouts of filesystems, and a layout that is unknown at first;
//   - figures that rise and fall around the points at which a decision changes. They are
//     measured on request or every 12, 15, 30 or 100 s. They can have no time, be missing
//     or impossible, or be unknown for a while;
//   - up to six pods with containers, init containers and sidecars, requests and limits,
//     overhead, pod-level resources and all kinds of volumes. Pods can arrive later,
//     change their usage, or have old figures or none;
//   - turns every 3, 10, 25 or 50 s;
//   - kills that take any time, hang, or fail once or always, and pods whose usage grows
//     while they terminate;
//   - space that becomes free when a pod has ended, when it is cleaned up, and by the
//     collections;
//   - restarts of the agent before a turn and while a pod terminates.
//
// The kubelet chooses at random in two cases. It orders equal pods at random, so two pods are
// never equal in all properties that determine their order. It can also choose at random among
// due thresholds, so a scenario ends where thresholds of several figures are due.
//
// # What is left out
//
//   - Manager.Run, which decides when to evaluate, and evaluates during a disk reclaim.
//   - Volumes without a figure: the kubelet panics.
//   - The memory cgroup notifier, which triggers the same pass at other times.
//   - The kubelet's metrics.
//   - Features that only our manager has: modes, a pod order that the caller supplies,
//     and delayed admission.
//
// # How rules work
//
// model.go and victims.go model the actions of a side in a turn. replay.go models how a side
// evaluates thresholds and conditions. Both have a switch for every difference. A rule fires
// only if the model with all switches as in the kubelet predicts the kubelet's result, and
// the model with all switches as in our manager predicts our result. The difference is then
// attributed to the first switch without which our result would be another one.
package eviction
