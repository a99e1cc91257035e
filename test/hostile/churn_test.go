//go:build linux && hostile

package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// writeSteady writes the manifests of the steady pods, each time with a new annotation.
func (r *run) writeSteady() {
	r.revision++
	for name, text := range steadyPods() {
		text = strings.Replace(text, "{name: "+name+"}", fmt.Sprintf(`{name: %s, annotations: {revision: "%d"}}`, name, r.revision), 1)
		if err := replace(r.path("manifests/steady-"+name+".yaml"), text); err != nil {
			r.report(err.Error())
		}
	}
}

// replace writes a file atomically.
func replace(path, text string) error {
	next := filepath.Join(filepath.Dir(path), "..", "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// churn writes, changes or removes one hostile manifest.
func (r *run) churn() error {
	n := r.rng.IntN(r.limits.files)
	name := fmt.Sprintf("h%d", n)
	path := r.path("manifests/" + name + ".yaml")
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	switch r.rng.IntN(10) {
	case 0, 1, 2:
		return nil // it is removed
	case 3:
		kind, err := placeFile(r.rng, path)
		r.manifest[kind]++
		return err
	}
	all := r.kinds
	if r.rng.IntN(2) == 0 {
		all = all[:kindsThatLive] // prefer manifests of pods that run, which cause more calls to the runtime
	}
	m := all[r.rng.IntN(len(all))]
	r.manifest[m.kind]++
	text := m.text(r.rng, name)
	if r.rng.IntN(4) == 0 { // write an incomplete file
		return os.WriteFile(path, []byte(text[:len(text)/2]), 0o600)
	}
	return replace(path, text)
}

// harm kills a container or sandbox of the agent, or restarts the runtime.
func (r *run) harm(ctx context.Context) {
	r.harmed++
	if r.rng.IntN(10) == 0 {
		r.node.Restart(time.Duration(r.rng.IntN(500)) * time.Millisecond)
		return
	}
	boxes, _ := r.node.ListPodSandbox(ctx, nil) // on an error the node is restarting, and nothing is killed
	containers, _ := r.node.ListContainers(ctx, nil)
	var ours, boxesOfOurs []string
	for _, b := range boxes {
		if b.GetLabels()[labelAgent] == agentName && b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			boxesOfOurs = append(boxesOfOurs, b.GetId())
		}
	}
	for _, c := range containers {
		if c.GetLabels()[labelAgent] == agentName && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			ours = append(ours, c.GetId())
		}
	}
	if len(ours) == 0 || len(boxesOfOurs) == 0 {
		return
	}
	// Ignore errors: the object may have ended already.
	id := ours[r.rng.IntN(len(ours))]
	switch r.rng.IntN(4) {
	case 0:
		_ = r.node.KillSandbox(boxesOfOurs[r.rng.IntN(len(boxesOfOurs))])
	case 1:
		_ = r.node.OOMKill(id)
	case 2:
		_ = r.node.SetUnknown(id)
	default:
		_ = r.node.Kill(id, int32(r.rng.IntN(256)))
	}
}
