package podloop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
	"github.com/kubeparts/kubeparts/status"
)

// probes is the prober, with a map from container IDs to pods and containers.
type probes struct {
	*prober.Manager
	grpc *grpcprobe.Checker

	mu sync.Mutex
	// keys has a probe key without a kind for each container ID. ids has the container IDs of
	// each pod. The last sync of each pod has set both.
	keys map[string]prober.Key
	ids  map[types.UID][]string
}

func newProbes(cfg prober.Config, grpc *grpcprobe.Checker) (*probes, error) {
	cfg.GRPC = grpc
	m, err := prober.New(cfg)
	return &probes{Manager: m, grpc: grpc, keys: map[string]prober.Key{}, ids: map[types.UID][]string{}}, err
}

// sync starts or updates the probes of a pod that a worker syncs.
func (p *probes) sync(req podworker.SyncRequest) {
	p.AddPod(req.Pod)
	p.setContainers(req.Pod.UID, req.Status)
}

// setContainers replaces the container IDs of a pod. A nil status deletes them.
func (p *probes) setContainers(uid types.UID, observed *podcache.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range p.ids[uid] {
		delete(p.keys, id)
	}
	delete(p.ids, uid)
	if observed == nil {
		return
	}
	for _, c := range observed.Containers {
		p.keys[c.GetId()] = prober.Key{PodUID: uid, Container: podcache.ContainerName(c)}
		p.ids[uid] = append(p.ids[uid], c.GetId())
	}
}

// remove stops the probes of a pod whose containers have ended.
func (p *probes) remove(uid types.UID) {
	p.RemovePod(uid)
	p.setContainers(uid, nil)
}

// results returns the probe results of a container, for the runner.
func (p *probes) results(id string) podrunner.ProbeResults {
	p.mu.Lock()
	key := p.keys[id]
	p.mu.Unlock()
	of := func(k prober.Kind) prober.Result { key.Kind = k; return p.Result(key, id) }
	startup := of(prober.Startup)
	return podrunner.ProbeResults{
		Started:       startup == prober.Success,
		StartupFailed: startup == prober.Failure, LivenessFailed: of(prober.Liveness) == prober.Failure,
	}
}

// forStatus returns the probe results of a pod, for its status.
func (p *probes) forStatus(uid types.UID) status.Probes {
	return func(container, id string) (startup, readiness status.ProbeResult) {
		s, r := p.ProbeResults(uid, container, id)
		return status.ProbeResult(s), status.ProbeResult(r)
	}
}

// runProbes runs the probes until ctx is done.
func (l *Loop) runProbes(ctx context.Context) error {
	changes := l.probes.Results(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for change := range changes {
			l.probed(change)
		}
	})
	err := l.probes.Run(ctx)
	reader.Wait()
	return errors.Join(err, l.probes.grpc.Close())
}

// probed handles a new probe result. It updates the pod's status immediately with a result of a
// readiness or startup probe. It wakes the pod's worker, except after a success of a liveness
// probe.
func (l *Loop) probed(c prober.Change) {
	good := c.Result == prober.Success
	switch c.Kind {
	case prober.Readiness:
		l.statuses.SetContainerReadiness(c.PodUID, c.ContainerID, good)
	case prober.Startup:
		l.statuses.SetContainerStartup(c.PodUID, c.ContainerID, good)
	case prober.Liveness:
		if good {
			return
		}
	}
	l.wake(c.PodUID)
}

// target returns the current state of a container, for its probes. The pod of the container may
// be ending, because readiness is probed until the containers have ended.
func (l *Loop) target(uid types.UID, container string, began time.Time) (prober.Target, bool) {
	observed, err := l.cache.Get(uid)
	if err != nil {
		return prober.Target{}, false
	}
	c := observed.Container(container)
	if c == nil {
		return prober.Target{}, false
	}
	t := prober.Target{ID: c.GetId()}
	switch c.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		t.State, t.StartedAt = prober.Running, time.Unix(0, c.GetStartedAt())
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		t.State = prober.Exited
	case runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return t, true
	}
	if len(observed.IPs) > 0 {
		t.PodIP = observed.IPs[0]
	} else if ips := l.cfg.Node.Facts().IPs; len(ips) > 0 { // the pod uses the host network
		t.PodIP = ips[0]
	}
	if t.State == prober.Running && t.StartedAt.Before(began) {
		t.Started = l.wasStarted(uid, t.ID)
	}
	return t, true
}

// wasStarted reports whether the container has started according to the last status of its pod.
// An earlier agent may have saved this status.
func (l *Loop) wasStarted(uid types.UID, id string) bool {
	last, _ := l.statuses.GetPodStatus(uid)
	for _, st := range slices.Concat(last.ContainerStatuses, last.InitContainerStatuses) {
		if podspec.RuntimeID(st.ContainerID) == id {
			return st.Started != nil && *st.Started
		}
	}
	return false
}

// retain stops the probes of pods for which the given function returns false.
func (p *probes) retain(known func(types.UID) bool) {
	p.CleanupPods(known)
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, ids := range p.ids {
		if known(uid) {
			continue
		}
		for _, id := range ids {
			delete(p.keys, id)
		}
		delete(p.ids, uid)
	}
}
