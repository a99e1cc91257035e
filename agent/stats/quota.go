package stats

import (
	"maps"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// project is a project of a filesystem: all files with the same project number.
type project struct {
	dev uint64
	id  uint32 // 0 means no project
}

// quotaReader reads projects and their usage from a filesystem.
type quotaReader interface {
	// project returns a folder's project, and whether new files in the folder inherit the
	// project.
	project(dir string) (p project, inherited bool, err error)
	// used returns the usage of a project on the filesystem of a folder.
	used(dir string, id uint32) (bytes, inodes uint64, err error)
}

// quotas reads the usage of folders with their own project from project quotas. The caller must
// record all folders before it measures the first folder: if several folders have the same
// project, the quota has only their sum and can't be used.
type quotas struct {
	kernel   quotaReader
	owners   map[project]map[string]types.UID // pod UIDs by folder
	measured int                              // number of folders whose usage came from a quota
}

// record records the project of a pod's folder, if the folder has its own project.
func (q *quotas) record(uid types.UID, dir string) {
	p, ok := q.own(dir)
	if !ok {
		return
	}
	if q.owners[p] == nil {
		q.owners[p] = map[string]types.UID{}
	}
	q.owners[p][dir] = uid
}

// own returns the project of a folder. It returns false if the folder has no project, or if new
// files in the folder do not inherit the project. It also returns false if the folder is not the
// top folder of the project, because the quota then also counts files outside the folder.
func (q *quotas) own(dir string) (project, bool) {
	p, inherited, err := q.kernel.project(dir)
	if err != nil || p.id == 0 || !inherited {
		return project{}, false
	}
	above, _, err := q.kernel.project(filepath.Dir(dir))
	return p, err == nil && above != p
}

// usage returns the usage of a folder and everything below the folder, from the folder's
// project quota. ok is false if the quota can't be used.
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
		delete(q.owners[p], other) // that folder was removed, or it no longer has the project p
	}
	bytes, inodes, err := q.kernel.used(dir, p.id)
	if err != nil || inodes == 0 { // without accounting, inodes is 0
		return u, false
	}
	q.measured++
	return eviction.DiskUsage{Bytes: usage(known(bytes), now), Inodes: usage(known(inodes), now)}, true
}

// retain deletes the records of pods for which the given function returns false.
func (q *quotas) retain(present func(types.UID) bool) {
	for p, owners := range q.owners {
		maps.DeleteFunc(owners, func(_ string, uid types.UID) bool { return !present(uid) })
		if len(owners) == 0 {
			delete(q.owners, p)
		}
	}
}
