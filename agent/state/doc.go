// Package state stores the small values that an agent needs after a restart: statuses, restart
// back-offs, ages of images, pull records, deadlines of ending pods.
//
// # What it does
//
// A [Store] has values by key. [Files] returns a store in a folder, in which the key is the
// path, and [Memory] a store in memory. Packages with state declare the methods that they call
// themselves and don't import this package: any type with the methods of Store fits.
//
// # What you supply
//
// You supply a folder for Files to which no other process writes, or your own Store, for
// example in a database. One store serves all packages of an agent, because their keys differ:
//
//	store := state.Files("/var/lib/agent")
//	saved := status.NewSaved(store)
//	…
//	manager, err := images.New(images.Config{State: store, …})
//
// # What it guarantees
//
//  1. After a crash a value is the old one or the new one. When Put has returned, it is the
//     new one, even after a power failure.
//  2. A key never refers to a path outside the folder, and Files follows no symbolic link in
//     it. The folder itself may be a link.
//  3. The remains of an interrupted Put are never returned as a value. The next Put or Delete
//     of the key, or Keys, removes them.
//  4. Files and folders that are not values, such as those of volumes, are not changed. Files
//     may share its folder with them.
//  5. An error names the key. If the key does not exist, it is fs.ErrNotExist.
//
// # Goroutines and locking
//
// The package starts no goroutine. All methods may be called concurrently; calls for the same
// key wait for each other. Files and Memory ignore the context, because they only wait for the
// disk.
//
// # Differences from the kubelet
//
// Each manager of the kubelet has its own files and formats below the kubelet's root directory;
// some are overwritten in place. Here one store has all values, and it need not be on the disk.
//
// # Testing your code with it
//
// Memory needs no clean-up. Use Files in t.TempDir to see what is written. To test your code
// with a failing disk, create a file at the path of a folder.
package state
