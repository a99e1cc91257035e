package state_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kubeparts/kubeparts/agent/state"
)

// A process stores a value, and the next process reads the value.
func ExampleFiles() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	fmt.Println(state.Files(dir).Put(ctx, "statuses/1.json", []byte("Running")))

	next := state.Files(dir)
	value, err := next.Get(ctx, "statuses/1.json")
	fmt.Println(string(value), err)
	keys, err := next.Keys(ctx, "statuses/")
	fmt.Println(keys, err)
	_, err = next.Get(ctx, "statuses/2.json")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// <nil>
	// Running <nil>
	// [statuses/1.json] <nil>
	// true
}
