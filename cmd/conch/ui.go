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
	var print, logout bool
	var req conch.PageRequest
	cmd := &cobra.Command{
		Use:     "ui [--print] [--read-only] [--port N] [--logout]",
		GroupID: groupDaemon,
		Short:   "Open the web page",
		Long: `Open the web page, which the daemon serves on 127.0.0.1, in a browser; where there
is none, print an address. It lets one browser in, once, within a minute, for 7
days. With --read-only that may look and not touch. What is for a person to decide can
be decided there only if conch ui was run by one, in a terminal.

conch token ls lists the browsers that are in, conch token revoke shuts one out,
--logout all of them.`,
		Example: `  conch ui
  conch ui --print --read-only
  conch ui --logout`,
		Args: words(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if logout {
				if print || req != (conch.PageRequest{}) {
					return conch.Errorf(conch.InvalidRequest, "--logout goes with no other flag")
				}
				n, err := a.client(client.Options{}).LogOut(cmd.Context())
				if err != nil {
					return err
				}
				_, err = fmt.Println("logged out:", n)
				return written(err)
			}
			req.NoPerson = person() != nil
			opener := ""
			if !print {
				opener = browserOpener()
			}
			req.File = opener != ""
			link, err := a.client(client.Options{}).Page(cmd.Context(), req)
			if err != nil {
				return err
			}
			if !link.Decides && !req.ReadOnly {
				say(os.Stderr, "who comes by this address cannot decide what is for a person to decide, such as to accept a contact", "a person runs conch ui in a terminal of their own")
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
	cmd.Flags().BoolVar(&logout, "logout", false, "shut out all browsers that were let in")
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
