package metrics

// chain0 to chain4 return a function with 0 to 4 arguments that calls both given functions
// in order. The second function may be nil.

func chain0(f, next func()) func() {
	if next == nil {
		return f
	}
	return func() { f(); next() }
}

func chain1[A any](f, next func(A)) func(A) {
	if next == nil {
		return f
	}
	return func(a A) { f(a); next(a) }
}

func chain2[A, B any](f, next func(A, B)) func(A, B) {
	if next == nil {
		return f
	}
	return func(a A, b B) { f(a, b); next(a, b) }
}

func chain3[A, B, C any](f, next func(A, B, C)) func(A, B, C) {
	if next == nil {
		return f
	}
	return func(a A, b B, c C) { f(a, b, c); next(a, b, c) }
}

func chain4[A, B, C, D any](f, next func(A, B, C, D)) func(A, B, C, D) {
	if next == nil {
		return f
	}
	return func(a A, b B, c C, d D) { f(a, b, c, d); next(a, b, c, d) }
}
