package fakecri_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// collect reads a stream to its end. It returns the items and the number of
// messages.
func collect[M, T any](stream grpc.ServerStreamingClient[M], err error, items func(*M) []T) (all []T, messages int, _ error) {
	for err == nil {
		var m *M
		if m, err = stream.Recv(); err == nil {
			all, messages = append(all, items(m)...), messages+1
		}
	}
	if errors.Is(err, io.EOF) {
		return all, messages, nil
	}
	return all, messages, err
}

func requireSame[T proto.Message](t *testing.T, want, got []T) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, proto.Equal(want[i], got[i]), "item %d", i)
	}
}

// aStream reads a streamed list and the corresponding ordinary list, and
// compares them.
type aStream func(ctx context.Context, t *testing.T, b *bed) (messages int, err error)

// streamsOf are all streamed lists.
func streamsOf(rt runtimeapi.RuntimeServiceClient, images runtimeapi.ImageServiceClient) map[string]aStream {
	return map[string]aStream{
		"StreamPodSandboxes": func(ctx context.Context, t *testing.T, b *bed) (int, error) {
			t.Helper()
			stream, err := rt.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
			got, messages, err := collect(stream, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
			want, _ := b.ListPodSandbox(ctx, nil)
			requireSame(t, want[:len(got)], got)
			return messages, err
		},
		"StreamContainers": func(ctx context.Context, t *testing.T, b *bed) (int, error) {
			t.Helper()
			stream, err := rt.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
			got, messages, err := collect(stream, err, (*runtimeapi.StreamContainersResponse).GetContainers)
			want, _ := b.ListContainers(ctx, nil)
			requireSame(t, want[:len(got)], got)
			return messages, err
		},
		"StreamContainerStats": func(ctx context.Context, t *testing.T, b *bed) (int, error) {
			t.Helper()
			stream, err := rt.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{})
			got, messages, err := collect(stream, err, (*runtimeapi.StreamContainerStatsResponse).GetContainerStats)
			want, _ := b.ListContainerStats(ctx, nil)
			requireSame(t, want[:len(got)], got)
			return messages, err
		},
		"StreamPodSandboxStats": func(ctx context.Context, t *testing.T, b *bed) (int, error) {
			t.Helper()
			stream, err := rt.StreamPodSandboxStats(ctx, &runtimeapi.StreamPodSandboxStatsRequest{})
			got, messages, err := collect(stream, err, (*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats)
			want, _ := b.ListPodSandboxStats(ctx, nil)
			requireSame(t, want[:len(got)], got)
			return messages, err
		},
		"StreamPodSandboxMetrics": func(ctx context.Context, t *testing.T, b *bed) (int, error) {
			t.Helper()
			stream, err := rt.StreamPodSandboxMetrics(ctx, &runtimeapi.StreamPodSandboxMetricsRequest{})
			got, messages, err := collect(stream, err, (*runtimeapi.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
			want, _ := b.ListPodSandboxMetrics(ctx)
			requireSame(t, want[:len(got)], got)
			return messages, err
		},
		"StreamImages": func(ctx context.Context, t *testing.T, b *bed) (int, error) {
			t.Helper()
			stream, err := images.StreamImages(ctx, &runtimeapi.StreamImagesRequest{})
			got, messages, err := collect(stream, err, (*runtimeapi.StreamImagesResponse).GetImages)
			want, _ := b.ListImages(ctx, nil)
			requireSame(t, want[:len(got)], got)
			return messages, err
		},
	}
}

func TestStreams_SplitListsIntoSeveralMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) {
			for i := range 235 {
				c.Images = append(c.Images, fakecri.Image{Name: fmt.Sprint("image", i)})
			}
		})
		rt, images := serve(t, b.Node)
		for i := range 250 {
			b.start(fmt.Sprint("p", i), "demo/web:1")
		}
		for name, read := range streamsOf(rt, images) {
			messages, err := read(t.Context(), t, b)
			require.NoError(t, err, name)
			require.Equal(t, 3, messages, name)
		}
	})
}

func TestStreams_EmptyListHasNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) { c.Images, c.Programs = nil, nil })
		rt, images := serve(t, b.Node)
		for name, read := range streamsOf(rt, images) {
			messages, err := read(t.Context(), t, b)
			require.NoError(t, err, name)
			require.Zero(t, messages, name)
		}
	})
}

func TestStreams_FiltersAndRecordedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		rt, _ := serve(t, b.Node)
		b.start("a", "demo/web:1")
		_, id := b.start("b", "demo/web:1")
		before := len(b.Calls())
		stream, err := rt.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
		got, _, err := collect(stream, err, (*runtimeapi.StreamContainersResponse).GetContainers)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, id, got[0].GetId())
		require.Equal(t, "StreamContainers", b.Calls()[before].String())
		require.Len(t, b.Calls(), before+1)
	})
}

func TestStreams_FailWhileTheRuntimeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		rt, images := serve(t, b.Node)
		b.Restart(1)
		for name, read := range streamsOf(rt, images) {
			_, err := read(t.Context(), t, b)
			require.Error(t, err, name)
			requireCode(t, codes.Unavailable, err)
		}
	})
}
