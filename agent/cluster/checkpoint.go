package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	// checkpointKey is the key of the checkpoint in [Config].State.
	checkpointKey = "cluster-pods.json"
	// offlineWait is how long the agent waits for the first list of pods before it uses the stored
	// pods. Without this wait, the agent could start a pod that was deleted while the agent was
	// not running.
	offlineWait = 10 * time.Second
)

// checkpoint stores the pods of the node, the services that their containers need, and all runtime
// classes. The agent reads them if it starts while the API server can't be reached. The methods of
// a checkpoint must not be called concurrently.
type checkpoint struct {
	cfg      Config
	services *services
	classes  *runtimeClasses
	saved    string // versions of the objects that are stored
}

// stored is the value of a checkpoint. It has no ConfigMaps, Secrets and tokens, because the files
// of an agent should not contain secrets.
type stored struct {
	Pods           []*corev1.Pod          `json:"pods"`
	Services       []*corev1.Service      `json:"services"` // of the namespaces of the pods, and of the namespace default
	RuntimeClasses []*nodev1.RuntimeClass `json:"runtimeClasses"`
}

// save stores the pods, their services and the runtime classes if one of these objects was added,
// removed or changed since the last successful call. It ignores most changes of a pod that do not
// change the pod's generation, such as a new status, but not a new terminal phase.
func (c *checkpoint) save(ctx context.Context, pods []*corev1.Pod) {
	if c.cfg.State == nil {
		return
	}
	next := stored{pods, c.services.of(pods), c.classes.all()}
	versions := next.versions()
	if versions == c.saved {
		return
	}
	if err := state.Save(ctx, c.cfg.State, checkpointKey, next); err != nil {
		c.cfg.Logger.WarnContext(ctx, "could not store the pods of the node, will retry when they change", "err", err)
		return
	}
	c.saved = versions
}

// versions returns a text with the UID and the version of each object. The version of a pod is its
// generation, its deletion timestamp, and whether its phase is terminal. Without the phase, an agent
// that starts without the API server could run a pod again that has failed.
func (s stored) versions() string {
	var text strings.Builder
	for _, p := range s.Pods {
		fmt.Fprintln(&text, p.UID, p.Generation, p.DeletionTimestamp, podspec.IsTerminal(p.Status.Phase))
	}
	write := func(o metav1.Object) { fmt.Fprintln(&text, o.GetUID(), o.GetResourceVersion()) }
	for _, service := range s.Services {
		write(service)
	}
	for _, class := range s.RuntimeClasses {
		write(class)
	}
	return text.String()
}

// load returns the stored pods. It also passes the stored services and runtime classes to
// c.services and c.classes, which use them until their first complete list. It returns
// false if no pods are stored or if they can't be loaded.
func (c *checkpoint) load(ctx context.Context) ([]*corev1.Pod, bool) {
	var loaded stored
	if err := state.Load(ctx, c.cfg.State, checkpointKey, &loaded); err != nil {
		c.cfg.Logger.WarnContext(ctx, "could not load the stored pods of the node, waiting for the API server", "err", err)
		return nil, false
	}
	if loaded.Pods == nil {
		return nil, false
	}
	c.services.watched.seed(loaded.Services)
	c.classes.watched.seed(loaded.RuntimeClasses)
	c.cfg.Logger.WarnContext(ctx, "could not list the pods of the node at the API server, managing the stored pods until a list succeeds", "pods", len(loaded.Pods))
	return loaded.Pods, true
}
