// An assembly file lets this package declare functions without a body: see kubelet.go.
