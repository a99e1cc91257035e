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

// unsent are the pods whose status the last sink has not taken.
type unsent struct {
	mu   sync.Mutex
	errs map[types.UID]error
}

func newUnsent() *unsent { return &unsent{errs: map[types.UID]error{}} }

// observe adds what u needs to an observer.
func (u *unsent) observe(o status.PublisherObserver) status.PublisherObserver {
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

func (u *unsent) set(uid types.UID, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		delete(u.errs, uid)
		return
	}
	u.errs[uid] = err
}

// retain drops the pods for which known returns false.
func (u *unsent) retain(known func(types.UID) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.errs, func(uid types.UID, _ error) bool { return !known(uid) })
}

// note describes the failures, empty without any.
func (u *unsent) note() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	uids := slices.Sorted(maps.Keys(u.errs))
	if len(uids) == 0 {
		return ""
	}
	return fmt.Sprintf("could not publish the statuses of %d pods, will retry: %v", len(uids), u.errs[uids[0]])
}
