package quantity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/internal/quantity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse_RejectsLargeExponents(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1e-1000000000", "1E-1000000000", "1e1000000000", "92E7000000000000000", "1e99999999999999999999999", "1e-100", "1e100 ", "1e+100",
	} {
		began := time.Now()
		_, err := quantity.Parse(text)
		require.ErrorContains(t, err, "is out of range", text)
		require.Less(t, time.Since(began), time.Second, text)
	}
}

func TestParse_RejectsTooManyDigits(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("9", 1_000_000)
	for _, text := range []string{many, "-" + many + "Ei", "0." + many, " " + many + "e-99"} {
		began := time.Now()
		_, err := quantity.Parse(text)
		require.ErrorContains(t, err, "too many for a quantity", text[:9])
		require.Less(t, time.Since(began), time.Second, text[:9])
	}
	_, err := quantity.Parse(many[:200])
	require.NoError(t, err)
	require.NoError(t, quantity.Check("sha256:"+many), "text that is not an amount must be accepted")
}

func TestParse_AgreesWithParseQuantity(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "100Mi", "1E", "2Ei", "1e3", "1e+3", "1E-3", "12e99", "", "e", "1e", "1ee5", "x", "1e5e5", "0.5", "-1Gi", " 1"} {
		got, err := quantity.Parse(text)
		want, wantErr := resource.ParseQuantity(text)
		require.Equal(t, wantErr, err, text)
		require.Zero(t, got.Cmp(want), text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"100Mi", "1e3", "92E7000000000000000", "1e-1000000000", "1E99", ".5e-99", "0.12345678901234567890e9"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if quantity.Check(text) != nil {
			return
		}
		got, err := quantity.Parse(text)
		want, wantErr := resource.ParseQuantity(text) // must not take long, otherwise the fuzzer reports a hang
		require.Equal(t, wantErr, err)
		require.Zero(t, got.Cmp(want))
	})
}
