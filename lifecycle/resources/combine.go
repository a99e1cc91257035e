package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
)

// Combine returns a function for podrunner.Config.Inject. The function calls
// Container of every ledger, in order, and merges the Injections. If Container
// of a ledger returns an error, the function returns an error that names the
// ledger. If two ledgers set CPUs, Mems, the same device path, CDI device,
// variable, mount path or annotation, or the health of the same resource, the
// error names both ledgers and the conflict. After an error the function still
// calls the ledgers that follow.
// In a conflict, the Injection contains the entry of the first ledger. Only
// CPUs and Mems are different: after a conflict about one of these fields, the
// field is empty.
func Combine[L Ledger](ledgers ...L) func(context.Context, ContainerRequest) (Injection, error) {
	ledgers = slices.Clone(ledgers)
	return func(ctx context.Context, r ContainerRequest) (Injection, error) {
		m := merger{owners: map[string]int{}, names: make([]string, len(ledgers))}
		for i, l := range ledgers {
			m.names[i] = l.Name()
			in, err := l.Container(ctx, r)
			if err != nil {
				m.errs = append(m.errs, fmt.Errorf("allocator %s: %w", m.names[i], err))
				continue
			}
			m.add(i, in)
		}
		return m.out, errors.Join(m.errs...)
	}
}

// merger merges Injections. owners maps the description of an entry, such as
// "device /dev/fuse", to the index of the ledger that has set the entry.
type merger struct {
	out    Injection
	owners map[string]int
	names  []string
	errs   []error
}

// add merges the Injection of the ledger with the given index.
func (m *merger) add(ledger int, in Injection) {
	m.list("CPUs", &m.out.CPUs, in.CPUs, ledger)
	m.list("Mems", &m.out.Mems, in.Mems, ledger)
	for _, d := range in.Devices {
		if d != nil && m.claim(ledger, "device "+path.Clean(d.GetContainerPath())) {
			m.out.Devices = append(m.out.Devices, d)
		}
	}
	for _, d := range in.CDIDevices {
		if d != nil && m.claim(ledger, "CDI device "+d.GetName()) {
			m.out.CDIDevices = append(m.out.CDIDevices, d)
		}
	}
	for _, mount := range in.Mounts {
		if mount != nil && m.claim(ledger, "mount "+path.Clean(mount.GetContainerPath())) {
			m.out.Mounts = append(m.out.Mounts, mount)
		}
	}
	m.texts("environment variable", &m.out.Env, in.Env, ledger)
	m.texts("annotation", &m.out.Annotations, in.Annotations, ledger)
	for _, h := range in.Health {
		if m.claim(ledger, "health of "+string(h.Name)) {
			m.out.Health = append(m.out.Health, h)
		}
	}
}

// claim records that a ledger sets thing. If another ledger has set the same
// thing before, claim records an error and returns false.
func (m *merger) claim(ledger int, thing string) bool {
	owner, claimed := m.owners[thing]
	if claimed && owner != ledger {
		m.errs = append(m.errs, fmt.Errorf("allocators %s and %s both set %s", m.names[owner], m.names[ledger], thing))
		return false
	}
	m.owners[thing] = ledger
	return true
}

// list merges a list of CPUs or of memory nodes. After a conflict the list is
// empty.
func (m *merger) list(thing string, out *string, value string, ledger int) {
	switch {
	case value == "":
	case m.claim(ledger, thing):
		*out = value
	default:
		*out = ""
	}
}

// texts merges environment variables or annotations.
func (m *merger) texts(kind string, out *map[string]string, in map[string]string, ledger int) {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if m.claim(ledger, kind+" "+name) {
			if *out == nil {
				*out = map[string]string{}
			}
			(*out)[name] = in[name]
		}
	}
}
