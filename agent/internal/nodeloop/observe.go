package nodeloop

// chain returns a callback that calls the two given callbacks in order. The second callback may
// be nil.
func chain[A any](first, next func(A)) func(A) {
	if next == nil {
		return first
	}
	return func(a A) { first(a); next(a) }
}

// chain2 is chain for callbacks with two arguments.
func chain2[A, B any](first, next func(A, B)) func(A, B) {
	if next == nil {
		return first
	}
	return func(a A, b B) { first(a, b); next(a, b) }
}
