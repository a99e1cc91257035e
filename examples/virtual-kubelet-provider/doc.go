// Package provider is a provider for virtual-kubelet that does what a kubelet does
// with containers: probes, restarts, back-off, graceful ends, statuses, garbage
// collection. It needs somewhere to run them, a [Machine] of five methods.
//
// virtual-kubelet brings pods from the API server and statuses back, and leaves
// what lies between to its providers. Probes, restarts, back-off and collection are
// in gains.go, some 60 lines of code; the rest is what any provider has:
//
//   - ending.go: how pods end, and what is said of them;
//   - provider.go: the methods that virtual-kubelet calls;
//   - machine.go: what the provider runs containers on;
//   - toy.go: one of those that runs Go functions, for tests and trials.
package provider
