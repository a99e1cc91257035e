package volumes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func TestMountInfo(t *testing.T) {
	datadriven.RunTest(t, "testdata/mountinfo", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		mounts, err := volumes.ParseMountInfo(strings.NewReader(d.Input))
		if err != nil {
			return err.Error() + "\n"
		}
		var b strings.Builder
		for _, m := range mounts {
			fmt.Fprintf(&b, "%s on %q\n", m.FSType, m.Target)
		}
		return b.String()
	})
}

func FuzzParseMountInfo(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add(`1 2 0:1 / /a\040b\134\777\ rw - tmpfs tmpfs rw`)
	f.Add("1 2 0:1 / /gone//deleted rw - tmpfs tmpfs rw\n\n")
	f.Fuzz(func(t *testing.T, data string) {
		mounts, err := volumes.ParseMountInfo(strings.NewReader(data))
		if err != nil {
			require.Empty(t, mounts)
			return
		}
		require.LessOrEqual(t, len(mounts), strings.Count(data, "\n")+1)
		var again strings.Builder
		escape := strings.NewReplacer(" ", `\040`, "\n", `\012`, "\t", `\011`, `\`, `\134`)
		for _, m := range mounts {
			require.True(t, strings.HasPrefix(m.Target, "/"))
			fmt.Fprintf(&again, "1 2 0:1 / %s rw - %s x rw\n", escape.Replace(m.Target), escape.Replace(m.FSType))
		}
		twice, err := volumes.ParseMountInfo(strings.NewReader(again.String()))
		require.NoError(t, err)
		require.Equal(t, mounts, twice)
	})
}
