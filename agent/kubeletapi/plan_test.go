package kubeletapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
)

func TestPlans_AreServedDespiteAnError(t *testing.T) {
	t.Parallel()
	var (
		decision   = eviction.Decision{At: at}
		images     = imagegc.Plan{At: at, HighThresholdPercent: 85}
		containers = containergc.Plan{At: at, NotReady: true}
		missing    = errors.New("a pod could not be measured")
	)
	const ok, failed = http.StatusOK, http.StatusInternalServerError
	for name, c := range map[string]struct {
		plan         agent.Plan
		err          error
		eviction, gc int
	}{
		"all":                 {agent.Plan{Eviction: decision, Images: images, Containers: containers}, nil, ok, ok},
		"all, not all known":  {agent.Plan{Eviction: decision, Images: images, Containers: containers}, missing, ok, ok},
		"no plan of images":   {agent.Plan{Eviction: decision, Containers: containers}, missing, ok, failed},
		"no containers":       {agent.Plan{Eviction: decision, Images: images}, missing, ok, failed},
		"no plan of eviction": {agent.Plan{Images: images, Containers: containers}, missing, failed, ok},
		"nothing":             {agent.Plan{}, missing, failed, failed},
	} {
		cfg := kubeletapi.Config{Agent: &fake{plan: func(context.Context) (agent.Plan, error) { return c.plan, c.err }}}
		for path, want := range map[string]int{"/agent/plan/eviction": c.eviction, "/agent/plan/gc": c.gc} {
			code, body := ask(t, cfg, path)
			require.Equal(t, want, code, "%s %s", name, path)
			if want == failed {
				require.Equal(t, missing.Error()+"\n", body)
			}
		}
	}
}

func TestGCPlan_HasImagesAndContainers(t *testing.T) {
	t.Parallel()
	cfg := kubeletapi.Config{Agent: &fake{plan: func(context.Context) (agent.Plan, error) {
		return agent.Plan{
			Images: imagegc.Plan{At: at, HighThresholdPercent: 85}, Containers: containergc.Plan{At: at, NotReady: true},
		}, nil
	}}}
	_, body := ask(t, cfg, "/agent/plan/gc")
	var plan struct {
		Images     imagegc.Plan     `json:"images"`
		Containers containergc.Plan `json:"containers"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &plan))
	require.Equal(t, 85, plan.Images.HighThresholdPercent)
	require.True(t, plan.Containers.NotReady)
	_, text := ask(t, cfg, "/agent/plan/gc?output=text")
	require.Equal(t, "containers:\n"+containergc.Plan{NotReady: true}.String()+"\nimages:\n"+imagegc.Plan{HighThresholdPercent: 85}.String(), text)
}
