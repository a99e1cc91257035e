package judge

// Traits are a set of behaviours in which our package differs from the kubelet, one bit each.
type Traits uint64

// Has reports whether t contains all traits of some.
func (t Traits) Has(some Traits) bool { return t&some == some }

// A Model predicts the facts of one world, for rules. Its methods cache their results. Methods of
// a nil Model must not be called.
type Model struct {
	// Play plays the world on a side with these traits and returns the facts of each step. A
	// side without traits behaves as the kubelet does, a side with All as our package does.
	Play func(Traits) []Facts
	All  Traits
	// Order has each trait alone. An earlier trait is preferred as a cause.
	Order []Traits

	played map[Traits][]Facts
	causes map[place]Traits
}

// A place is where a difference was found.
type place struct {
	step int
	fact string
}

// Facts returns the facts of a step on a side with these traits, or nil if the world has no such
// step.
func (m *Model) Facts(step int, t Traits) Facts {
	all, ok := m.played[t]
	if !ok {
		if m.played == nil {
			m.played = map[Traits][]Facts{}
		}
		all = m.Play(t)
		m.played[t] = all
	}
	if step >= len(all) {
		return nil
	}
	return all[step]
}

// Explains reports whether the two sides have the predicted values of a fact, and a trait is the
// cause of their difference. The cause is the first trait without which our side has another value,
// or with which alone the kubelet's side has another value. If no single trait has this effect, the
// traits are added to the kubelet's side one by one. The cause is then the last trait that changes
// the value.
func (m *Model) Explains(step int, fact, kubelet, ours string, t Traits) bool {
	if m.Facts(step, 0)[fact] != kubelet || m.Facts(step, m.All)[fact] != ours {
		return false
	}
	at := place{step, fact}
	cause, ok := m.causes[at]
	if !ok {
		if m.causes == nil {
			m.causes = map[place]Traits{}
		}
		cause = m.cause(step, fact)
		m.causes[at] = cause
	}
	return cause == t
}

func (m *Model) cause(step int, fact string) Traits {
	value := func(t Traits) string { return m.Facts(step, t)[fact] }
	theirs, ours := value(0), value(m.All)
	for _, t := range m.Order {
		if value(m.All&^t) != ours || value(t) != theirs {
			return t
		}
	}
	last, some := Traits(0), Traits(0)
	for _, t := range m.Order {
		before := value(some)
		if some |= t; value(some) != before {
			last = t
		}
	}
	return last
}
