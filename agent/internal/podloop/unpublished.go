package podloop

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/status"
)

// unpublished has the last error of each pod whose status could not be published. It observes
// only the publisher of Config.Sink, or the publisher of Config.State if Config.Sink is nil.
type unpublished struct {
	mu   sync.Mutex
	errs map[types.UID]error
}

func newUnpublished() *unpublished { return &unpublished{errs: map[types.UID]error{}} }

// observe returns an observer that updates u and then calls o.
func (u *unpublished) observe(o status.PublisherObserver) status.PublisherObserver {
	published, failed := o.Published, o.Failed
	o.Published = func(p status.Publication) {
		u.set(p.Pod.UID, nil)
		if published != nil {
			published(p)
		}
	}
	o.Failed = func(pod *corev1.Pod, err error, retryIn time.Duration) {
		u.set(pod.UID, err)
		if failed != nil {
			failed(pod, err, retryIn)
		}
	}
	return o
}

func (u *unpublished) set(uid types.UID, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		delete(u.errs, uid)
		return
	}
	u.errs[uid] = err
}

// retain deletes the pods for which the given function returns false.
func (u *unpublished) retain(known func(types.UID) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.errs, func(uid types.UID, _ error) bool { return !known(uid) })
}

// note describes the failures. It returns an empty string if there are no failures.
func (u *unpublished) note() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	uids := slices.Sorted(maps.Keys(u.errs))
	if len(uids) == 0 {
		return ""
	}
	return fmt.Sprintf("could not publish the statuses of %d pods, will retry: %v", len(uids), u.errs[uids[0]])
}
