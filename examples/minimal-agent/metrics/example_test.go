package metrics_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/metrics"
	"github.com/kubeparts/kubeparts/pleg"
)

// An observer of one's own goes on being called.
func Example() {
	m, err := metrics.New(metrics.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	observer := m.PLEG(pleg.Observer{
		RelistEnd: func(_ pleg.Result, err error) { fmt.Println("relisted:", err) },
	})
	observer.RelistEnd(pleg.Result{Took: time.Second}, errors.New("no answer")) // the generator does

	w := httptest.NewRecorder()
	m.Handlers(metrics.Sources{}).Metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for s := bufio.NewScanner(w.Body); s.Scan(); {
		if strings.HasPrefix(s.Text(), "kubelet_pleg_relist_duration_seconds_sum") {
			fmt.Println(s.Text())
		}
	}
	// Output:
	// relisted: no answer
	// kubelet_pleg_relist_duration_seconds_sum 1
}
