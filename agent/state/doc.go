// Package state stores the small values that an agent needs after a restart: statuses,
// restart back-offs, ages of images, pull records, deadlines of pods that are ending.
//
// # What it does
//
// A [Store] has values by key. [Files] is one in a folder, where the key is the path, and
// [Memory] is one that ends with the process. Packages that keep state declare what they
// call of a store themselves and don't import this package: any type with the methods of
// Store fits them.
//
// # What you supply
//
// A folder for Files, which no other process writes to, or a Store of your own, in a
// database for example. One store serves all packages of an agent, because their keys
// differ:
//
//	store := state.Files("/var/lib/agent")
//	saved := status.NewSaved(store)
//	…
//	manager, err := images.New(images.Config{State: store, …})
//
// # What it guarantees
//
//  1. After a crash a value is the old one or the new one. When Put has returned, it is
//     the new one, also after a power failure.
//  2. A key never leads out of the folder, and Files follows no symbolic link in it. The
//     folder itself may be a link.
//  3. What an interrupted Put left behind is never a value. The next Put or Delete of the
//     key removes it, and so does Keys.
//  4. Files and folders that are not values, such as those of volumes, stay as they are.
//     Files may share its folder with them.
//  5. An error names the key. If the key is on no disk, it is fs.ErrNotExist.
//
// # Goroutines and locking
//
// The package starts no goroutine. All methods may be called at the same time; calls for
// the same key wait for each other. Neither Files nor Memory looks at the context, because
// they wait for nothing but the disk.
//
// # Differences from the kubelet
//
// Each manager of the kubelet has files and formats of its own below its root directory,
// some of which are written in place. Here one store has them all, and it can be another
// than the disk.
//
// # Testing your code with it
//
// Memory needs no cleaning up. Files in t.TempDir shows what is written; to test what your
// code does about a disk that fails, put a file where a folder should be.
package state
