package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/client"
)

func newUI(a *app) *cobra.Command {
	var print bool
	var req conch.PageRequest
	cmd := &cobra.Command{
		Use:     "ui [--print] [--read-only] [--port N]",
		GroupID: groupDaemon,
		Short:   "Open the web page",
		Long: `Open the web page, which the daemon serves on 127.0.0.1, in a browser; where there
is none, print an address. It lets one browser in, once, within a minute, for 7
days. With --read-only that may look and not touch.`,
		Example: `  conch ui
  conch ui --print --read-only`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opener := ""
			if !print {
				opener = browserOpener()
			}
			req.File = opener != ""
			link, err := a.client(client.Options{}).Page(cmd.Context(), req)
			if err != nil {
				return err
			}
			if opener != "" {
				// A file, since other users can read a program's arguments.
				open := exec.Command(opener, link.File)
				if err := open.Run(); err == nil {
					page, _, _ := strings.Cut(link.URL, "#")
					_, err = fmt.Println(page)
					return written(err)
				}
				say(os.Stderr, opener+" opened no browser", "the address follows")
			}
			_, err = fmt.Println(link.URL)
			return written(err)
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print the address and open nothing")
	cmd.Flags().BoolVar(&req.ReadOnly, "read-only", false, "let the browser look and not touch")
	cmd.Flags().IntVar(&req.Port, "port", 0, "serve it at port `N` (default: the key ui_port, else the one it had, else any)")
	return cmd
}

// browserOpener is the program that opens a browser, "" where nobody would see one.
func browserOpener() string {
	name := "xdg-open"
	switch {
	case !isTerminal(os.Stdout):
		return ""
	case runtime.GOOS == "darwin":
		name = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return ""
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}
