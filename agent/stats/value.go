package stats

import "math"

// value is a number that may be unknown. Unknown is not zero: a missing file must not be
// mistaken for a node without memory, or for a pod that uses no memory.
type value struct {
	n  uint64
	ok bool
}

func known(n uint64) value { return value{n, true} }

// minus returns v - o, or 0 if o is larger. The counters of the kernel are read one after
// another, so they may be inconsistent. A wrapped difference would be 16 EiB of memory
// (kubernetes#52386).
func (v value) minus(o value) value {
	if !v.ok || !o.ok {
		return value{}
	}
	return known(v.n - min(v.n, o.n))
}

// plus saturates at the largest number.
func (v value) plus(o value) value {
	if !v.ok || !o.ok {
		return value{}
	}
	return known(v.n + min(o.n, math.MaxUint64-v.n))
}

// times saturates at the largest number.
func (v value) times(factor uint64) value {
	if v.ok && factor != 0 && v.n > math.MaxUint64/factor {
		return known(math.MaxUint64)
	}
	return value{v.n * factor, v.ok}
}

// or returns v, or o if v is unknown.
func (v value) or(o value) value {
	if v.ok {
		return v
	}
	return o
}

// least returns the smaller of the known values.
func (v value) least(o value) value {
	if v.ok && o.ok {
		return known(min(v.n, o.n))
	}
	return v.or(o)
}

// ptr returns a pointer to the number, or nil if the number is unknown, as in the types of the
// summary.
func (v value) ptr() *uint64 {
	if !v.ok {
		return nil
	}
	return &v.n
}

// fromPtr returns the value for a result of ptr.
func fromPtr(n *uint64) value {
	if n == nil {
		return value{}
	}
	return known(*n)
}
