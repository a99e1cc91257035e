package podcache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kubeparts/kubeparts/podcache"
)

// A worker waits for the status of its pod after its last change to the pod.
func Example() {
	cache := podcache.New()
	acted := time.Now()

	go func() { // the writer: an inspection that began later
		cache.Set("1234", &podcache.Status{UID: "1234", Name: "web", Namespace: "default"}, nil, acted.Add(time.Second))
	}()
	status, err := cache.GetNewerThan(context.Background(), "1234", acted)
	fmt.Println(status.Name, err)

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = cache.GetNewerThan(ctx, "5678", acted)
	fmt.Println(err)

	// The writer has listed all pods: a pod that is not in the cache does not exist.
	cache.UpdateTime(acted)
	status, err = cache.GetNewerThan(context.Background(), "5678", acted)
	fmt.Println(len(status.Containers), err)
	// Output:
	// web <nil>
	// wait for a status of pod 5678: context deadline exceeded
	// 0 <nil>
}
