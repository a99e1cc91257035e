package volumes_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func TestObserver_EveryOperation(t *testing.T) {
	t.Parallel()
	var told []string
	tell := func(what string) func(volumes.Operation) {
		return func(o volumes.Operation) {
			told = append(told, fmt.Sprint(what, " ", o.PodUID, "/", o.Volume, " ", o.Plugin, " failed=", o.Err != nil))
		}
	}
	d := &disks{driver: "disks", err: errors.New("no such disk")}
	n := newNode(t, func(c *volumes.Config) {
		c.Plugins = []volumes.Plugin{d}
		c.Observer = volumes.Observer{
			Mounted: tell("mounted"), TornDown: tell("torn down"), Unmounted: func(uid types.UID) { told = append(told, "unmounted "+string(uid)) },
		}
	})
	p := podOf(vol("data", csi("disks")), vol("e", emptyDir()))
	_, err := n.Mount(t.Context(), p)
	require.Error(t, err)
	require.Equal(t, []string{"mounted uid-1/data example.com/disks failed=true", "mounted uid-1/e kubernetes.io/empty-dir failed=false"}, told)

	told, d.err = nil, nil
	_, err = n.Mount(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, n.Refresh(t.Context(), p))
	require.Equal(t, []string{
		"mounted uid-1/data example.com/disks failed=false", "mounted uid-1/e kubernetes.io/empty-dir failed=false",
		"mounted uid-1/data example.com/disks failed=false", // Refresh does nothing for an emptyDir
	}, told)

	told, d.err = nil, errors.New("in use")
	require.Error(t, n.Unmount(t.Context(), p.UID))
	require.Equal(t, []string{"torn down uid-1/data example.com/disks failed=true", "torn down uid-1/e kubernetes.io/empty-dir failed=false"}, told)
	told, d.err = nil, nil
	require.NoError(t, n.Unmount(t.Context(), p.UID))
	require.Equal(t, []string{"torn down uid-1/data example.com/disks failed=false", "unmounted uid-1"}, told)
}
