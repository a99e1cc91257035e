// Package provider is a provider for virtual-kubelet that manages containers as a kubelet
// does: probes, restarts, back-off, graceful termination, statuses, garbage collection. It
// runs the containers on a [Machine], an interface of five methods.
//
// virtual-kubelet gets pods from the API server and writes their statuses. Its providers do
// everything else. Probes, restarts, back-off and garbage collection are in gains.go, about
// 60 lines of code; the rest is what any provider has:
//
//   - ending.go: the termination of pods, and their statuses;
//   - provider.go: the methods that virtual-kubelet calls;
//   - machine.go: the interface that runs containers;
//   - toy.go: an implementation that runs Go functions, for tests and trials.
package provider
