package fakecri_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// names lists containers by name and state, sandboxes and images by name.
func (b *bed) names(method string) (names []string) {
	b.t.Helper()
	ctx := b.t.Context()
	switch method {
	case "ListContainers":
		list, err := b.ListContainers(ctx, nil)
		require.NoError(b.t, err)
		for _, c := range list {
			names = append(names, fmt.Sprint(c.GetMetadata().GetName(), " ", c.GetState()))
		}
	case "ListPodSandbox":
		list, err := b.ListPodSandbox(ctx, nil)
		require.NoError(b.t, err)
		for _, s := range list {
			names = append(names, fmt.Sprint(s.GetMetadata().GetName(), " ", s.GetState()))
		}
	default:
		list, err := b.ListImages(ctx, nil)
		require.NoError(b.t, err)
		for _, i := range list {
			names = append(names, i.GetRepoTags()...)
		}
	}
	return names
}

const (
	aRuns = "a CONTAINER_RUNNING"
	bRuns = "b CONTAINER_RUNNING"
)

// pair creates a pod p with containers a and b.
func pair(t *testing.T) (b *bed, sandbox, first, second string) {
	t.Helper()
	b = newBed(t, func(c *fakecri.Config) {
		c.Images, c.Programs = []fakecri.Image{{Name: "demo/web:1"}, {Name: "demo/job:1"}}, nil
	})
	sandbox = b.pod("p")
	first, second = b.make(sandbox, "p", "a", "demo/web:1"), b.make(sandbox, "p", "b", "demo/web:1")
	require.NoError(t, b.StartContainer(t.Context(), first))
	require.NoError(t, b.StartContainer(t.Context(), second))
	return b, sandbox, first, second
}

func TestAnswer_Lists(t *testing.T) {
	for name, tc := range map[string]struct {
		method string
		answer fakecri.Answer
		want   []string
	}{
		"partial":                      {"ListContainers", fakecri.Answer{Keep: new(1)}, []string{aRuns}},
		"empty":                        {"ListContainers", fakecri.Answer{Keep: new(0)}, nil},
		"more than there is":           {"ListContainers", fakecri.Answer{Keep: new(9)}, []string{aRuns, bRuns}},
		"without one container":        {"ListContainers", fakecri.Answer{Missing: []string{"default/p/a"}}, []string{bRuns}},
		"without an unknown container": {"ListContainers", fakecri.Answer{Missing: []string{"default/p/x"}}, []string{aRuns, bRuns}},
		"one container twice":          {"ListContainers", fakecri.Answer{Duplicates: []string{"default/p/a"}}, []string{aRuns, bRuns, aRuns}},
		"one twice, one missing":       {"ListContainers", fakecri.Answer{Duplicates: []string{"default/p/a"}, Missing: []string{"default/p/a"}}, []string{bRuns, aRuns}},
		"bare":                         {"ListContainers", fakecri.Answer{Bare: true}, []string{" CONTAINER_RUNNING", " CONTAINER_RUNNING"}},
		"nil":                          {"ListContainers", fakecri.Answer{Nil: true}, []string{" CONTAINER_CREATED", " CONTAINER_CREATED"}},
		"a pod twice":                  {"ListPodSandbox", fakecri.Answer{Duplicates: []string{"default/p"}}, []string{"p SANDBOX_READY", "p SANDBOX_READY"}},
		"a pod is missing":             {"ListPodSandbox", fakecri.Answer{Missing: []string{"default/p"}}, nil},
		"a pod is padded":              {"ListPodSandbox", fakecri.Answer{PadBytes: 10}, []string{"p SANDBOX_READY"}},
		"an image is missing":          {"ListImages", fakecri.Answer{Missing: []string{"demo/web:1"}}, []string{"docker.io/demo/job:1"}},
		"an image by tag, twice":       {"ListImages", fakecri.Answer{Duplicates: []string{"demo/job:1"}, Keep: new(3)}, []string{"docker.io/demo/web:1", "docker.io/demo/job:1", "docker.io/demo/job:1"}},
		"bare images":                  {"ListImages", fakecri.Answer{Bare: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, _, _ := pair(t)
			whole := b.names(tc.method)
			require.NoError(t, b.Fail(tc.method, fakecri.Fault{Answer: tc.answer, Times: 1}))
			require.Equal(t, tc.want, b.names(tc.method))
			require.Equal(t, whole, b.names(tc.method)) // the fault must not have changed the node
		})
	}
}

func TestAnswer_StaleListsAreFiltered(t *testing.T) {
	b, sandbox, first, _ := pair(t)
	for _, method := range []string{"ListContainers", "ListPodSandbox", "ListImages"} {
		require.NoError(t, b.Fail(method, fakecri.Fault{Answer: fakecri.Answer{Stale: true}}))
	}
	images := b.names("ListImages")
	require.NoError(t, b.Kill(first, 1))
	require.NoError(t, b.RemovePodSandbox(t.Context(), sandbox))
	require.NoError(t, b.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: "demo/web:1"}))
	b.pod("new")

	for range 2 {
		require.Equal(t, []string{aRuns, bRuns}, b.names("ListContainers"))
		require.Equal(t, []string{"p SANDBOX_READY"}, b.names("ListPodSandbox"))
		require.Equal(t, images, b.names("ListImages"))
	}
	list, err := b.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
		Id: first, PodSandboxId: sandbox, State: &runtimeapi.ContainerStateValue{State: running},
		LabelSelector: map[string]string{"io.kubernetes.container.name": "a"},
	})
	require.NoError(t, err)
	require.Len(t, list, 1)
	list[0].Labels["io.kubernetes.container.name"] = "changed" // the list is a copy
	gone, err := b.ListPodSandbox(t.Context(), &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: notReady},
	})
	require.NoError(t, err)
	require.Empty(t, gone)
	_, err = b.ContainerStatus(t.Context(), first, false) // the fault does not apply to statuses
	requireCode(t, codes.NotFound, err)

	b.ClearFaults("")
	require.Empty(t, b.names("ListContainers"))
	require.Equal(t, []string{"new SANDBOX_READY"}, b.names("ListPodSandbox"))
}

func TestAnswer_Statuses(t *testing.T) {
	b, sandbox, first, second := pair(t)
	web := &runtimeapi.ImageSpec{Image: "demo/web:1"}
	look := func() (c *runtimeapi.ContainerStatusResponse, s *runtimeapi.PodSandboxStatusResponse, i *runtimeapi.ImageStatusResponse) {
		var errs [3]error
		c, errs[0] = b.ContainerStatus(t.Context(), first, false)
		s, errs[1] = b.PodSandboxStatus(t.Context(), sandbox, false)
		i, errs[2] = b.ImageStatus(t.Context(), web, false)
		require.Equal(t, [3]error{}, errs)
		return c, s, i
	}
	spoil := func(a fakecri.Answer) {
		for method, object := range map[string]string{
			"ContainerStatus": first, "PodSandboxStatus": "default/p", "ImageStatus": "demo/web:1",
		} {
			require.NoError(t, b.Fail(method, fakecri.Fault{Object: object, Answer: a, Times: 1}))
		}
	}
	spoil(fakecri.Answer{Bare: true})
	c, s, i := look()
	require.Equal(t, first, c.GetStatus().GetId())
	require.Equal(t, running, c.GetStatus().GetState())
	require.Nil(t, c.GetStatus().GetMetadata())
	require.Nil(t, c.GetStatus().GetLabels())
	require.Nil(t, c.GetStatus().GetImage())
	require.Equal(t, sandbox, s.GetStatus().GetId())
	require.Nil(t, s.GetStatus().GetNetwork())
	require.NotEmpty(t, i.GetImage().GetId())
	require.Nil(t, i.GetImage().GetRepoTags())

	spoil(fakecri.Answer{Nil: true})
	require.NotNil(t, b.status(second).GetMetadata()) // the fault applies only to the other container
	c, s, i = look()
	require.Nil(t, c.GetStatus())
	require.Nil(t, s.GetStatus())
	require.Nil(t, i.GetImage())

	c, s, i = look()
	require.Equal(t, "a", c.GetStatus().GetMetadata().GetName())
	require.Equal(t, "p", s.GetStatus().GetMetadata().GetName())
	require.NotEmpty(t, i.GetImage().GetRepoTags())
}

func TestAnswer_AffectsOnlyItsCall(t *testing.T) {
	b, _, first, _ := pair(t)
	require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Answer: fakecri.Answer{Nil: true}, Times: 1}))
	require.Len(t, b.names("ListContainers"), 2)
	require.NotNil(t, b.status(first))
	require.Equal(t, []string{"p SANDBOX_READY"}, b.names("ListPodSandbox"))
}

func TestAnswer_ListAboveTheGRPCLimit(t *testing.T) {
	b, _, _, _ := pair(t)
	const limit = 16 << 20
	rt, _ := serve(t, b.Node)
	list := func() (*runtimeapi.ListContainersResponse, error) {
		return rt.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}, grpc.MaxCallRecvMsgSize(2*limit))
	}
	require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Answer: fakecri.Answer{PadBytes: limit}}))
	_, err := list()
	requireCode(t, codes.ResourceExhausted, err, "trying to send message larger than max")
	whole, err := b.ListContainers(t.Context(), nil) // the Go interface has no limit
	require.NoError(t, err)
	require.Len(t, whole[0].GetAnnotations()["fakecri/padding"], limit)
	require.Equal(t, "a container", whole[0].GetAnnotations()["note"])

	plain := newBed(t)
	_, err = plain.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}, "")
	require.NoError(t, err)
	require.NoError(t, plain.Fail("ListPodSandbox", fakecri.Fault{Answer: fakecri.Answer{PadBytes: 3}}))
	pods, err := plain.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"fakecri/padding": "xxx"}, pods[0].GetAnnotations())

	b.ClearFaults("")
	require.NoError(t, b.Fail("ListContainers", fakecri.Fault{Answer: fakecri.Answer{Nil: true}}))
	resp, err := list()
	require.NoError(t, err)
	require.Len(t, resp.GetContainers(), 2)
	require.Empty(t, resp.GetContainers()[0].GetId())
}
