package nodeloop

// then returns a callback that calls first and then next, which may be nil.
func then[A any](first, next func(A)) func(A) {
	if next == nil {
		return first
	}
	return func(a A) { first(a); next(a) }
}

// then2 is then for callbacks with two arguments.
func then2[A, B any](first, next func(A, B)) func(A, B) {
	if next == nil {
		return first
	}
	return func(a A, b B) { first(a, b); next(a, b) }
}
