package imagegc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/imagegc"
)

// infoOf returns where images are stored.
type infoOf struct {
	mountpoints []string
	err         error
}

func (i infoOf) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	answer := &runtimeapi.ImageFsInfoResponse{}
	for _, m := range i.mountpoints {
		answer.ImageFilesystems = append(answer.ImageFilesystems,
			&runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m}})
	}
	return answer, i.err
}

func TestPathFS_ReturnsTheKernelsValues(t *testing.T) {
	dir := t.TempDir()
	u, err := imagegc.PathFS(dir).Usage(t.Context())
	require.NoError(t, err)
	require.Positive(t, u.CapacityBytes)
	require.LessOrEqual(t, u.AvailableBytes, u.CapacityBytes)

	same, err := imagegc.RuntimeFS{Runtime: infoOf{mountpoints: []string{"", dir, "/nowhere"}}}.Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, u.CapacityBytes, same.CapacityBytes)

	_, err = imagegc.PathFS(dir + "/missing").Usage(t.Context())
	require.ErrorContains(t, err, "/missing: no such file or directory")
	_, err = imagegc.RuntimeFS{Runtime: infoOf{}}.Usage(t.Context())
	require.EqualError(t, err, "the runtime reports no image filesystem")
	_, err = imagegc.RuntimeFS{Runtime: infoOf{err: errors.New("busy")}}.Usage(t.Context())
	require.EqualError(t, err, "image filesystem info: busy")
}
