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
	// project returns a folder's project, and whether new files in the folder inherit it.
	project(dir string) (p project, inherited bool, err error)
	// used returns the usage of a project on the filesystem of a folder.
	used(dir string, id uint32) (bytes, inodes uint64, err error)
}

// quotas returns the usage of folders that have their own project, without a walk. All folders
// must be recorded before the first one is measured: a project of several folders does not have
// the usage of each.
type quotas struct {
	kernel   quotaReader
	owners   map[project]map[string]types.UID // pod UIDs by folder
	measured int                              // number of folders measured by usage
}

// record records the project of a pod's folder, if it has one.
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

// own returns the project of a folder, and false if the folder is not the top folder of the
// project: an inherited project also counts files outside the folder.
func (q *quotas) own(dir string) (project, bool) {
	p, inherited, err := q.kernel.project(dir)
	if err != nil || p.id == 0 || !inherited {
		return project{}, false
	}
	above, _, err := q.kernel.project(filepath.Dir(dir))
	return p, err == nil && above != p
}

// usage returns the usage of a folder and everything below it, if the folder has its own
// project.
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
		delete(q.owners[p], other) // project numbers are reused after a folder was removed
	}
	bytes, inodes, err := q.kernel.used(dir, p.id)
	if err != nil || inodes == 0 { // quota accounting is off, or the folder itself would be counted
		return u, false
	}
	q.measured++
	return eviction.DiskUsage{Bytes: usage(known(bytes), now), Inodes: usage(known(inodes), now)}, true
}

// retain deletes the folders of pods for which present returns false.
func (q *quotas) retain(present func(types.UID) bool) {
	for p, owners := range q.owners {
		maps.DeleteFunc(owners, func(_ string, uid types.UID) bool { return !present(uid) })
		if len(owners) == 0 {
			delete(q.owners, p)
		}
	}
}
