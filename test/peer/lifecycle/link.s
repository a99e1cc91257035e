// An assembly file lets this package declare functions without a body: see deadline.go.
