package stats

import (
	"maps"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// A project is what a filesystem counts together: all that carries its number.
type project struct {
	dev uint64
	id  uint32 // 0 is everything that has no project
}

// A quotaReader asks a filesystem about its projects.
type quotaReader interface {
	// project returns a folder's project, and whether it passes it on to all that
	// is made in it.
	project(dir string) (p project, inherited bool, err error)
	// used returns what the project of that number takes on the filesystem of a
	// folder.
	used(dir string, id uint32) (bytes, inodes uint64, err error)
}

// quotas tells what folders take that are projects of their own, without a walk.
// All folders are to be noted before the first one is measured: a project that
// several of them have tells nothing of each.
type quotas struct {
	kernel quotaReader
	owners map[project]map[string]types.UID // by folder
	told   int                              // how often usage did
}

// note keeps in mind that a folder of a pod has a project, if it has one.
func (q *quotas) note(uid types.UID, dir string) {
	p, ok := q.own(dir)
	if !ok {
		return
	}
	if q.owners[p] == nil {
		q.owners[p] = map[string]types.UID{}
	}
	q.owners[p][dir] = uid
}

// own returns the project of a folder that is the uppermost one of it: what is
// inherited counts what is beside the folder, too.
func (q *quotas) own(dir string) (project, bool) {
	p, inherited, err := q.kernel.project(dir)
	if err != nil || p.id == 0 || !inherited {
		return project{}, false
	}
	above, _, err := q.kernel.project(filepath.Dir(dir))
	return p, err == nil && above != p
}

// usage returns what a folder takes with all below it, if a project says so that it
// has for itself.
func (q *quotas) usage(dir string, now time.Time) (u eviction.DiskUsage, ok bool) {
	p, ok := q.own(dir)
	if !ok {
		return u, false
	}
	for other := range q.owners[p] {
		if other == dir {
			continue
		}
		if its, has := q.own(other); has && its == p {
			return u, false
		}
		delete(q.owners[p], other) // numbers are given again when a folder is gone
	}
	bytes, inodes, err := q.kernel.used(dir, p.id)
	if err != nil || inodes == 0 { // nothing is counted, or the folder would be
		return u, false
	}
	q.told++
	return eviction.DiskUsage{Bytes: usage(known(bytes), now), Inodes: usage(known(inodes), now)}, true
}

// keep forgets the folders of other pods than these.
func (q *quotas) keep(present func(types.UID) bool) {
	for p, owners := range q.owners {
		maps.DeleteFunc(owners, func(_ string, uid types.UID) bool { return !present(uid) })
		if len(owners) == 0 {
			delete(q.owners, p)
		}
	}
}
