package podworker

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// gate lets one static pod of each full name run at a time. A manifest that
// changes is a new pod of the same name, which must not start before its
// predecessor has ended.
type gate struct {
	// lines are the pods of each name in the order in which they came. The first
	// one may run.
	lines map[string][]types.UID
}

// enter puts the pod at the end of the line for its name.
func (g *gate) enter(name string, uid types.UID) {
	if !slices.Contains(g.lines[name], uid) {
		g.lines[name] = append(g.lines[name], uid)
	}
}

// first returns whose turn it is.
func (g *gate) first(name string) (uid types.UID, ok bool) {
	if line := g.lines[name]; len(line) > 0 {
		return line[0], true
	}
	return "", false
}

// behind says whether the pod waits for another.
func (g *gate) behind(name string, uid types.UID) bool {
	first, ok := g.first(name)
	return ok && first != uid
}

// leave takes the pod out of the line.
func (g *gate) leave(name string, uid types.UID) {
	line := slices.DeleteFunc(g.lines[name], func(u types.UID) bool { return u == uid })
	if len(line) == 0 {
		delete(g.lines, name)
		return
	}
	g.lines[name] = line
}
