// Package provider is a provider for virtual-kubelet that manages containers as a kubelet
// does: probes, restarts, back-off, graceful termination, statuses, garbage collection. It
// runs the containers on a [Machine], an interface of five methods.
//
// virtual-kubelet gets pods from the API server and writes their statuses. A provider does
// everything else. The file gains.go contains probes, restarts, back-off and garbage
// collection, about 60 lines of code. Any provider has code like the other files:
//
//   - ending.go: the termination of pods, and their statuses;
//   - provider.go: the methods that virtual-kubelet calls;
//   - machine.go: the interface for running containers;
//   - toy.go: an implementation that runs Go functions, for tests and trials.
package provider
