package podips_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/podips"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ips, prefer, want []string }{
		{nil, nil, nil},
		{[]string{"10.0.0.1", "10.0.0.2", "fd00::1"}, nil, []string{"10.0.0.1", "fd00::1"}},
		{[]string{"fd00::1", "10.0.0.1"}, []string{"192.0.2.1", "2001:db8::1"}, []string{"10.0.0.1", "fd00::1"}},
		{[]string{"10.0.0.1", "fd00::1"}, []string{"2001:db8::1"}, []string{"fd00::1", "10.0.0.1"}},
		{[]string{"10.0.0.1"}, []string{"none", "2001:db8::1"}, []string{"10.0.0.1"}},
		{[]string{"10.0.0.1", "fd00::1"}, []string{"none", "2001:db8::1"}, []string{"fd00::1", "10.0.0.1"}},
		{[]string{"", "none", "010.001.0.1", "FD00:0::1"}, nil, []string{"10.1.0.1", "fd00::1"}},
		{[]string{"::ffff:10.0.0.1"}, nil, []string{"10.0.0.1"}},
	} {
		require.Equal(t, c.want, podips.Families(c.ips, c.prefer), c.ips)
	}
}
